"""``firedex controller``."""

import logging
import os
import signal
import socket
import sys
from pathlib import Path

import click

from firedex.wire.addresses import http_address, is_loopback, parse_host_port
from firedex_controller.errors import FrameworkMissing
from firedex_controller.settings import (
    DEFAULT_AGENT,
    ControllerSettings,
    SwitchSettings,
    parse_switch,
)

__all__ = ["controller"]


def _switches(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, tuple[int, str | None]]:
    try:
        parsed = [parse_switch(text) for text in given]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    for what, values in (("name", [p[0] for p in parsed]), ("datapath id", [p[1] for p in parsed])):
        if len(set(values)) < len(values):
            raise click.BadParameter(f"two switches have the same {what}")
    return {name: (datapath, port) for name, datapath, port in parsed}


def _agents(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str | None, str]:
    """``URL`` for all switches, or ``NAME=URL`` for one."""
    agents: dict[str | None, str] = {None: DEFAULT_AGENT}
    for text in given:
        name, equals, url = text.partition("=")
        try:
            http_address(url if equals else text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        agents[name if equals else None] = url if equals else text
    return agents


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
    callback=_switches,
    metavar="NAME=DATAPATH_ID[:PORT]",
    help="A switch, and the port of it that leads to its own hosts. Repeat for more.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    callback=_agents,
    metavar="[NAME=]URL",
    help=f"The switch agent that sets queues, of one switch or of all.  [default: {DEFAULT_AGENT}]",
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
@click.option("--token", help="What the service must show; needed unless --api is on loopback.")
@click.option("--agent-token", help="What is shown to the switch agents.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("firedex-controller.json"),
    show_default=True,
    help="Where the desired network is kept.",
)
@click.option(
    "--framework",
    type=click.Choice(["os-ken", "ryu"]),
    help="Which OpenFlow framework; by default the one that is installed.",
)
def controller(
    switches: dict[str, tuple[int, str | None]],
    agents: dict[str | None, str],
    listen: tuple[str, int],
    api: tuple[str, int],
    token: str | None,
    agent_token: str | None,
    state: Path,
    framework: str | None,
) -> None:
    """Run the OpenFlow controller: learns the network, keeps switches at what is desired.

    Needs no root: queues are set by `firedex switch-agent` on the switches' host. Rules stay on the
    switches when this process ends, and are taken up again when it comes back.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if unknown := set(agents) - set(switches) - {None}:
        raise click.BadParameter(f"no --switch is named {unknown.pop()!r}", param_hint="--agent")
    if listen == api:
        raise click.BadParameter("the same as --listen", param_hint="--api")
    if token and not (token.isascii() and token.isprintable()):
        raise click.BadParameter("must be printable ASCII", param_hint="--token")
    if not token and not is_loopback(api[0]):
        raise click.BadParameter("needed, since --api is not on loopback", param_hint="--token")
    settings = ControllerSettings(
        switches={
            name: SwitchSettings(
                datapath_id=datapath,
                hosts_port=port,
                agent=agents.get(name, agents[None]),
            )
            for name, (datapath, port) in switches.items()
        },
        api_host=api[0],
        api_port=api[1],
        token=token or None,
        agent_token=agent_token or None,
        state=state.absolute(),
    )
    _check_writable(state)
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


def _check_writable(state: Path) -> None:
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        with state.open("a"):
            pass
        if not state.stat().st_size:
            state.unlink()
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--state") from error
