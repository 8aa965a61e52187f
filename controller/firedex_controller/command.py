"""``firedex controller``."""

import logging
import os
import signal
import socket
import sys

import click

from firedex.wire.addresses import parse_host_port
from firedex_controller.errors import FrameworkMissing
from firedex_controller.settings import ControllerSettings, parse_switch

__all__ = ["controller"]


def _switch(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> object:
    try:
        return dict(parse_switch(text) for text in given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _host_port(_context: click.Context, _option: click.Parameter, given: str) -> tuple[str, int]:
    try:
        return parse_host_port(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _check_free(option: str, where: tuple[str, int]) -> None:
    """Refuse an address that cannot be listened on; the frameworks would say nothing of it."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        said = f"{where[0]}:{where[1]}: {error}"
        raise click.BadParameter(said, param_hint=option) from error


@click.command(epilog="Example: firedex controller --switch s1=0000000000000001:s1-eth3")
@click.option(
    "--switch",
    "switches",
    multiple=True,
    required=True,
    callback=_switch,
    metavar="NAME=DATAPATH_ID:PORT",
    help="A switch, and the port of it whose queues FireDeX sets. Repeat for more.",
)
@click.option(
    "--listen",
    default="127.0.0.1:6653",
    show_default=True,
    callback=_host_port,
    metavar="HOST:PORT",
    help="For switches.",
)
@click.option(
    "--api",
    default="127.0.0.1:8080",
    show_default=True,
    callback=_host_port,
    metavar="HOST:PORT",
    help="For the service.",
)
@click.option(
    "--framework",
    type=click.Choice(["os-ken", "ryu"]),
    help="Which OpenFlow framework; by default the one that is installed.",
)
def controller(
    switches: dict[str, tuple[int, str]],
    listen: tuple[str, int],
    api: tuple[str, int],
    framework: str | None,
) -> None:
    """Run the OpenFlow controller beside the switches (needs root there, for their queues)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = ControllerSettings(switches=switches, api_host=api[0], api_port=api[1])
    os.environ.update(settings.to_environment())
    if framework:
        os.environ["FIREDEX_OPENFLOW"] = framework
    for option, where in (("--listen", listen), ("--api", api)):
        _check_free(option, where)
    # Nothing is to be tidied up, since rules stay on the switch; the frameworks' threads linger.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda number, _frame: os._exit(128 + number))
    try:
        # Only now: importing it chooses and patches the framework.
        from firedex_controller.framework import run
    except FrameworkMissing as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    run("firedex_controller.app", host=listen[0], port=listen[1])
