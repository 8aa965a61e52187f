"""A real federation whose links can be cut, and whose clients connect through gateways."""

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

import yaml

from firedex.system.processes import ChildProcess, accepts_connections, firedex_command
from tests.support.free_ports import free_port
from tests.support.real_federation import RealFederation
from tests.support.waiting import wait_until

__all__ = ["FailingFederation", "TcpRelay"]

CHUNK_BYTES = 65_536


class TcpRelay:
    """A TCP relay on loopback. While it is cut, it delivers nothing and accepts no connection."""

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._is_open = asyncio.Event()
        self._connections: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Accept connections, and deliver what waits in connections that were cut silently."""
        self._is_open.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)

    async def cut(self, *, silently: bool) -> None:
        """Stop the relay. ``silently``: connections stay open, but nothing passes."""
        self._is_open.clear()
        if silently:
            return
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._connections:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            self._connections.discard(writer)
            return
        self._connections.add(far_writer)
        copies = (self._copy(reader, far_writer), self._copy(far_reader, writer))
        await asyncio.gather(*copies)
        for each in (writer, far_writer):
            each.transport.abort()
            self._connections.discard(each)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self._is_open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()


class FailingFederation(RealFederation):
    """Sites whose interest comes from their gateways; each link passes through a relay."""

    def __init__(
        self, folder: Path, links: Iterable[tuple[str, str]], *, lease_seconds: float
    ) -> None:
        super().__init__(folder, links, lease_seconds=lease_seconds)
        self.gateway_ports = {site: free_port() for site in self.sites}
        self.sn_ports = {site: free_port() for site in self.sites}
        self._interest_ports = {site: free_port() for site in self.sites}
        self.gateways: dict[str, ChildProcess] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays")
        self._thread.start()
        self._relays = {
            (one, other): TcpRelay(self.link_ports[other])
            for pair in self.links
            for one, other in (pair, pair[::-1])
        }
        for relay in self._relays.values():
            self._run(relay.open())
        content = yaml.safe_load(self.file.read_text())
        for entry in content["sites"]:
            entry["gateway"] = f"http://127.0.0.1:{self._interest_ports[entry['id']]}"
        self.file.write_text(yaml.safe_dump(content))
        for site in self.sites:
            own = yaml.safe_load(self.file.read_text())
            for entry in own["sites"]:
                if (site, entry["id"]) in self._relays:
                    entry["listen"] = f"127.0.0.1:{self._relays[site, entry['id']].port}"
            self._file_of(site).write_text(yaml.safe_dump(own))

    def _file_of(self, site: str) -> Path:
        """Return the file of a site, in which its neighbours have the addresses of relays."""
        return self.folder / f"federation-{site}.yaml"

    def _run(self, action: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(action, self._loop).result(60)

    def start(self, site: str) -> None:
        """Start the federator of a site, and before it the gateway if it does not run."""
        if site not in self.gateways:
            self.start_gateway(site)
        super().start(site)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for gateway in self.gateways.values():
            gateway.kill()
        for relay in self._relays.values():
            self._run(relay.cut(silently=False))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- failures ------------------------------------------------------------------------------

    def start_gateway(self, site: str) -> None:
        """Start the gateway of a site, and wait until it accepts connections."""
        port = self.gateway_ports[site]
        self.gateways[site] = ChildProcess(
            firedex_command(
                "gateway", "--listen", f"127.0.0.1:{port}",
                "--udp-listen", f"127.0.0.1:{self.sn_ports[site]}",
                "--broker", f"127.0.0.1:{self.broker_ports[site]}",
                "--interest", f"127.0.0.1:{self._interest_ports[site]}",
                "--state", str(self.folder / f"{site}-gateway.sqlite"),
                "--service", "http://127.0.0.1:9",
            ),
            self.folder / f"{site}-gateway.log",
        )  # fmt: skip
        wait_until(lambda: accepts_connections("127.0.0.1", port), f"the gateway of {site} listens")

    def kill_gateway(self, site: str) -> None:
        """Kill the gateway of a site (SIGKILL)."""
        self.gateways[site].kill()

    def cut_link(self, one: str, other: str, *, silently: bool) -> None:
        """Cut the link between two sites; ``silently``: without closing its connections."""
        for pair in ((one, other), (other, one)):
            self._run(self._relays[pair].cut(silently=silently))

    def restore_link(self, one: str, other: str) -> None:
        """Let the link between two sites work again."""
        for pair in ((one, other), (other, one)):
            self._run(self._relays[pair].open())
