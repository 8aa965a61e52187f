"""Fake switches as a process, with their state as JSON, printed or over HTTP."""

import json
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import click

from firedex.wire.addresses import parse_host_port
from firedex_controller.errors import ControllerError
from tests.support.fake_switch.network import FakeNetwork
from tests.support.fake_switch.switch import FakeSwitch

__all__ = ["VIEWS", "serve_inspection", "state_of"]


def _flows(switch: FakeSwitch) -> list[dict[str, Any]]:
    with switch.network.lock:
        found = [
            {
                **asdict(stored.flow),
                "match": stored.flow.match.as_readable(),
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
    """Return the requested views of each switch; without ``views``, all of them."""
    print_requested = views or tuple(VIEWS)
    return {
        name: {view: VIEWS[view](switch) for view in print_requested}
        for name, switch in network.switches.items()
    }


def serve_inspection(network: FakeNetwork, address: tuple[str, int]) -> ThreadingHTTPServer:
    """Serve GET /flows, /meters, /connected and /received by switch, and / for all of them."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # inherited name
            view = self.path.strip("/")
            if view and view not in VIEWS:
                self.send_error(404, f"unknown view; the views are {', '.join(VIEWS)}")
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


EXAMPLE = """
Example:

  python -m tests.support.fake_switch --controller 127.0.0.1:6653
    --switch core=0000000000000001 --switch edge=0000000000000002 --ports 4
    --link core:1-edge:1 --inspect 127.0.0.1:6680
"""


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_host_port(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _port_id(text: str) -> tuple[str, int]:
    switch, _, port = text.rpartition(":")
    if not switch or not port.isdecimal():
        raise click.BadParameter(f"{text!r} is not SWITCH:PORT, such as core:1")
    return switch, int(port)


def _build(
    network: FakeNetwork, switches: tuple[str, ...], ports: int, links: tuple[str, ...]
) -> None:
    for argument in switches:
        name, _, datapath = argument.partition("=")
        try:
            datapath_id = int(datapath, 16)
        except ValueError:
            reason = f"{argument!r} is not NAME=DATAPATH, such as core=0000000000000001"
            raise click.BadParameter(reason) from None
        network.add_switch(name, datapath_id=datapath_id, ports=ports, connect=False)
    for argument in links:
        one, _, other = argument.partition("-")
        try:
            network.add_link(_port_id(one), _port_id(other))
        except ControllerError as error:
            raise click.BadParameter(f"{argument!r}: {error}") from error


@click.command(epilog=EXAMPLE)
@click.option("--controller", required=True, help="Address of the controller, HOST:PORT.")
@click.option(
    "--switch", "switches", multiple=True, required=True, help="A switch, NAME=DATAPATH_ID."
)
@click.option("--ports", default=4, show_default=True, help="Number of ports of each switch.")
@click.option("--link", "links", multiple=True, help="A link, SWITCH:PORT-SWITCH:PORT.")
@click.option("--max-flows", type=int, help="Maximum number of flows in each table.")
@click.option("--max-meters", type=int, help="Maximum number of meters.")
@click.option("--no-bundles", is_flag=True, help="Refuse the bundle extension.")
@click.option("--inspect", help="Serve /flows, /meters, /connected and /received here.")
def main(
    *,
    controller: str,
    switches: tuple[str, ...],
    ports: int,
    links: tuple[str, ...],
    max_flows: int | None,
    max_meters: int | None,
    no_bundles: bool,
    inspect: str | None,
) -> None:
    """Run fake OpenFlow switches until SIGTERM; SIGUSR1 prints their state as JSON."""
    stop_requested, print_requested = threading.Event(), threading.Event()
    network = FakeNetwork(controller=_address(controller))
    _build(network, switches, ports, links)

    def on_signal(number: int, _: object) -> None:
        (print_requested if number == signal.SIGUSR1 else stop_requested).set()
        wake_up.set()

    wake_up = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, on_signal)
    with network:
        if inspect is not None:
            server = serve_inspection(network, _address(inspect))
            click.echo("inspect at http://{}:{}/".format(*server.server_address[:2]), err=True)
        for switch in network.switches.values():
            switch.limit(
                max_flows=max_flows,
                max_meters=max_meters,
                bundles=False if no_bundles else None,
            )
            switch.start()
        while not stop_requested.is_set():
            wake_up.wait()
            wake_up.clear()
            if print_requested.is_set():
                print_requested.clear()
                click.echo(json.dumps(state_of(network)))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
