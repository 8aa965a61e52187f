"""``firedex switch-agent``."""

import logging
import os
import signal
import sys
import threading

import click

from firedex.wire.addresses import is_loopback, parse_host_port
from firedex_controller.agent.http_interface import AgentServer
from firedex_controller.agent.port_keeper import PortKeeper
from firedex_controller.agent.switch_tools import SwitchTools

__all__ = ["switch_agent"]


def _host_port(_context: click.Context, _option: click.Parameter, given: str) -> tuple[str, int]:
    try:
        return parse_host_port(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    "switch-agent", epilog="Example: firedex switch-agent --listen 127.0.0.1:8082 --token s3cret"
)
@click.option(
    "--listen",
    default="127.0.0.1:8082",
    show_default=True,
    callback=_host_port,
    envvar="FIREDEX_SWITCH_AGENT_LISTEN",
    show_envvar=True,
    metavar="HOST:PORT",
    help="For the controller; anywhere but on loopback, a token is needed.",
)
@click.option(
    "--token",
    envvar="FIREDEX_SWITCH_AGENT_TOKEN",
    show_envvar=True,
    metavar="TEXT",
    help="What the controller has to know. The variable keeps it out of the list of processes.",
)
def switch_agent(listen: tuple[str, int], token: str | None) -> None:
    """Own the queues of this host's switch ports (needs root), for a controller to ask."""
    if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
        raise click.BadParameter("must be printable ASCII, and not empty", param_hint="--token")
    if token is None and not is_loopback(listen[0]):
        said = f"{listen[0]} is not loopback; give a --token too"
        raise click.BadParameter(said, param_hint="--listen")
    if os.geteuid() != 0:
        click.echo("firedex: switch-agent needs root, for the queues of ports", err=True)
        sys.exit(2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    keeper = PortKeeper(SwitchTools())
    try:
        server = AgentServer(listen, keeper, token)
    except OSError as error:
        said = f"{listen[0]}:{listen[1]}: {error}"
        raise click.BadParameter(said, param_hint="--listen") from error
    _serve(server, keeper)


def _serve(server: AgentServer, keeper: PortKeeper) -> None:
    stopping = threading.Event()
    for ending in (signal.SIGINT, signal.SIGTERM):
        # Ports stay shaped: the switch goes on by itself, and the next agent takes over.
        signal.signal(ending, lambda *_: stopping.set())
    threading.Thread(target=keeper.watch, args=(stopping,), daemon=True).start()
    answering = threading.Thread(target=server.serve_forever, daemon=True)
    answering.start()
    stopping.wait()
    server.shutdown()
    server.server_close()
