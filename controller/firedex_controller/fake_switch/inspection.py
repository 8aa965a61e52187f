"""The state of fake switches for other processes: as JSON, printed or over loopback HTTP."""

import json
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from firedex_controller.fake_switch.network import FakeNetwork
from firedex_controller.fake_switch.switch import FakeSwitch

__all__ = ["VIEWS", "serve_inspection", "state_of"]


def _flows(switch: FakeSwitch) -> list[dict[str, Any]]:
    with switch.network.lock:
        found = [
            {
                **asdict(stored.flow),
                "match": stored.flow.match.readable(),
                "packets": stored.counters.packets,
            }
            for stored in switch.agent.flows
        ]
    return sorted(found, key=lambda flow: (flow["table"], -flow["priority"], str(flow["match"])))


def _meters(switch: FakeSwitch) -> list[dict[str, Any]]:
    return sorted(map(asdict, switch.meters()), key=lambda meter: meter["id"])


def _received(switch: FakeSwitch) -> list[dict[str, Any]]:
    return [
        {"kind": message.kind, "transaction": message.transaction, "refused": message.refused}
        for message in switch.received()
    ]


VIEWS: dict[str, Callable[[FakeSwitch], Any]] = {
    "connected": lambda switch: switch.connected.is_set(),
    "flows": _flows,
    "meters": _meters,
    "received": _received,
}


def state_of(network: FakeNetwork, *views: str) -> dict[str, dict[str, Any]]:
    """For each switch what is asked for, or everything."""
    asked = views or tuple(VIEWS)
    return {
        name: {view: VIEWS[view](switch) for view in asked}
        for name, switch in network.switches.items()
    }


def serve_inspection(network: FakeNetwork, address: tuple[str, int]) -> ThreadingHTTPServer:
    """Serve GET /flows, /meters, /connected and /received, each by switch, and / for all of it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            view = self.path.strip("/")
            if view and view not in VIEWS:
                self.send_error(404, f"there are: {', '.join(VIEWS)}")
                return
            state: Any = state_of(network, *filter(None, [view]))
            if view:
                state = {name: found[view] for name, found in state.items()}
            body = json.dumps(state).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(address, Handler)
    Thread(target=server.serve_forever, daemon=True, name="inspection").start()
    return server
