"""Metrics and status over HTTP, while the event loop of the federator runs."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any, cast

from firedex.federation.federator import Federator, FederatorOptions
from firedex.federation.journal import MemoryJournal
from firedex.federation.metrics import serve_metrics
from firedex.federation.node import FederationNode
from firedex.federation.settings import FederationFile, FederationSite
from tests.support.free_ports import free_port
from tests.support.memory_federation import MemoryBroker

STATUS: dict[str, Any] = {
    "counters": {"events_sent": 3},
    "sites": [{"id": "port", "reachable": True, "filters": 2}],
    "journal": {"by_site": {"fire": 1}},
    "refusals_by_site": {"bus": 4, "": 1},
    "broker": {"connected": True},
}


class StatusOnly:
    """A federator with a status only, which records the threads that read it."""

    def __init__(self) -> None:
        self.node = self
        self.threads: set[int] = set()

    def status(self) -> dict[str, Any]:
        self.threads.add(threading.get_ident())
        return STATUS


async def get(port: int, path: str) -> tuple[int, str]:
    def request() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(request)


def test_status_is_read_in_the_event_loop_only() -> None:
    async def main() -> None:
        federator, port = StatusOnly(), free_port()
        stop = serve_metrics(cast("Federator", federator), ("127.0.0.1", port))
        try:
            status, text = await get(port, "/metrics")
            assert status == 200
            assert "firedex_federation_events_sent_total 3.0" in text
            assert 'firedex_federation_refused_connections_total{site="bus"} 4.0' in text
            assert json.loads((await get(port, "/status"))[1]) == STATUS
        finally:
            stop()
        assert federator.threads == {threading.get_ident()}

    asyncio.run(main())


def test_status_shares_nothing_with_the_federator() -> None:
    """Another thread writes it as JSON while the federator changes its tables."""
    site = FederationSite(id="port", listen="127.0.0.1:1", broker="127.0.0.1:2")
    federator = Federator(FederationFile(name="test", sites=(site,)), FederatorOptions(site="port"))
    broker = MemoryBroker()
    federator.node = FederationNode(
        "port", neighbours=federator.links, broker=broker, journal=MemoryJournal()
    )
    federator.broker = cast("Any", SimpleNamespace(is_connected=True, refusal=None))
    federator.sources = cast("Any", SimpleNamespace(states=dict))
    before = federator.status()
    text = json.dumps(before)
    federator.node.set_local_interest("file", {"alarm/#": 1})
    federator.node.interest.remote.replace("fire", {"smoke/#": 1})
    federator.peer_refused("site bus (10.0.0.1:5)", "it is not trusted")
    assert json.dumps(before) == text
    assert federator.status()["refusals_by_site"] == {"bus": 1}
