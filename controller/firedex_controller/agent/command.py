"""The command ``firedex switch-agent``."""

import logging
import os
import signal
import sys
import threading

import click

from firedex.system.options import HOST_PORT
from firedex.transport.http_server import JsonServer
from firedex.wire.addresses import is_loopback
from firedex_controller.agent.interface import agent_server
from firedex_controller.agent.port_keeper import PortKeeper
from firedex_controller.agent.switch_tools import SwitchTools
from firedex_controller.settings import token_is_valid

__all__ = ["switch_agent"]


@click.command(
    "switch-agent", epilog="Example: firedex switch-agent --listen 127.0.0.1:8082 --token s3cret"
)
@click.option(
    "--listen",
    type=HOST_PORT,
    default="127.0.0.1:8082",
    show_default=True,
    envvar="FIREDEX_SWITCH_AGENT_LISTEN",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Address the agent listens on. An address that is not loopback needs a token.",
)
@click.option(
    "--token",
    envvar="FIREDEX_SWITCH_AGENT_TOKEN",
    show_envvar=True,
    metavar="TEXT",
    help="Token that the controller must send. "
    "The environment variable keeps it out of the process list.",
)
def switch_agent(listen: tuple[str, int], token: str | None) -> None:
    """Set up the queues of the switch ports of this host for a controller. Requires root.

    Ports keep their queues when the agent stops; after a restart, the agent continues with them.
    """
    if token is not None and not token_is_valid(token):
        raise click.BadParameter(
            "must be printable ASCII without spaces, and not empty", param_hint="--token"
        )
    if token is None and not is_loopback(listen[0]):
        reason = f"{listen[0]} is not a loopback address, so --token is required"
        raise click.BadParameter(reason, param_hint="--listen")
    if os.geteuid() != 0:
        click.echo("firedex: switch-agent needs root to set up the queues of ports", err=True)
        sys.exit(2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    keeper = PortKeeper(SwitchTools())
    try:
        server = agent_server(listen, keeper, token)
    except OSError as error:
        reason = f"cannot listen on {listen[0]}:{listen[1]}: {error}"
        raise click.BadParameter(reason, param_hint="--listen") from error
    _serve(server, keeper)


def _serve(server: JsonServer, keeper: PortKeeper) -> None:
    stop_requested = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop_requested.set())
    threading.Thread(target=keeper.watch, args=(stop_requested,), daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stop_requested.wait()
    server.shutdown()
    server.server_close()
