"""Fake switches as a process: ``python -m firedex_controller.fake_switch --help``."""

import json
import signal
import sys
import threading

import click

from firedex.wire.addresses import parse_host_port
from firedex_controller.errors import ControllerError
from firedex_controller.fake_switch.inspection import serve_inspection, state_of
from firedex_controller.fake_switch.network import FakeNetwork

EXAMPLE = """
Example:

  python -m firedex_controller.fake_switch --controller 127.0.0.1:6653
    --switch core=0000000000000001 --switch edge=0000000000000002 --ports 4
    --link core:1-edge:1 --inspect 127.0.0.1:6680
"""


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_host_port(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _place(text: str) -> tuple[str, int]:
    switch, _, port = text.rpartition(":")
    if not switch or not port.isdecimal():
        raise click.BadParameter(f"{text!r} is not SWITCH:PORT, such as core:1")
    return switch, int(port)


def _build(
    network: FakeNetwork, switches: tuple[str, ...], ports: int, links: tuple[str, ...]
) -> None:
    for described in switches:
        name, _, datapath = described.partition("=")
        try:
            datapath_id = int(datapath, 16)
        except ValueError:
            reason = f"{described!r} is not NAME=DATAPATH, such as core=0000000000000001"
            raise click.BadParameter(reason) from None
        network.add_switch(name, datapath_id=datapath_id, ports=ports, connect=False)
    for described in links:
        one, _, other = described.partition("-")
        try:
            network.add_link(_place(one), _place(other))
        except ControllerError as error:
            raise click.BadParameter(f"{described!r}: {error}") from error


@click.command(epilog=EXAMPLE)
@click.option("--controller", required=True, help="HOST:PORT of the controller.")
@click.option("--switch", "switches", multiple=True, required=True, help="NAME=DATAPATH, in hex.")
@click.option("--ports", default=4, show_default=True, help="Ports of each switch.")
@click.option("--link", "links", multiple=True, help="SWITCH:PORT-SWITCH:PORT.")
@click.option("--max-flows", type=int, help="Room for so many flows in each table.")
@click.option("--max-meters", type=int, help="Room for so many meters.")
@click.option("--no-bundles", is_flag=True, help="Refuse the bundle extension.")
@click.option("--inspect", help="HOST:PORT to serve /flows, /meters, /connected, /received at.")
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
    ended, asked = threading.Event(), threading.Event()
    network = FakeNetwork(controller=_address(controller))
    _build(network, switches, ports, links)

    def wake(number: int, _: object) -> None:
        (asked if number == signal.SIGUSR1 else ended).set()
        woken.set()

    woken = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, wake)
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
        while not ended.is_set():
            woken.wait()
            woken.clear()
            if asked.is_set():
                asked.clear()
                click.echo(json.dumps(state_of(network)))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
