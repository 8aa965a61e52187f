"""The command ``firedex controller``.

It must not import ``http.server`` or httpx: under Ryu, eventlet has to patch the standard library
before they are imported.
"""

import logging
import os
import signal
import socket
import sys
from pathlib import Path

import click

from firedex.system.options import HOST_PORT
from firedex.wire.addresses import is_loopback, parse_http_url
from firedex_controller.errors import FrameworkMissing
from firedex_controller.settings import (
    DEFAULT_AGENT,
    ControllerSettings,
    SwitchSettings,
    parse_switch,
    token_is_valid,
)

__all__ = ["controller"]


def _parse_switches(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, tuple[int, str | None]]:
    try:
        parsed = [parse_switch(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    for field, values in (
        ("name", [p[0] for p in parsed]),
        ("datapath id", [p[1] for p in parsed]),
    ):
        if len(set(values)) < len(values):
            raise click.BadParameter(f"two switches have the same {field}")
    return {name: (datapath, port) for name, datapath, port in parsed}


def _parse_agents(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str | None, str]:
    """Parse ``URL``, for all switches, or ``NAME=URL``, for one."""
    agents: dict[str | None, str] = {None: DEFAULT_AGENT}
    for text in texts:
        name, equals, url = text.partition("=")
        try:
            parse_http_url(url if equals else text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        agents[name if equals else None] = url if equals else text
    return agents


def _check_token(option: str, token: str | None) -> None:
    if token and not token_is_valid(token):
        raise click.BadParameter("must be printable ASCII without spaces", param_hint=option)


def _check_address_is_free(option: str, address: tuple[str, int]) -> None:
    """Reject an address that is in use, because the frameworks do not report it."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        reason = f"cannot listen on {address[0]}:{address[1]}: {error}"
        raise click.BadParameter(reason, param_hint=option) from error


def _check_writable(state: Path) -> None:
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        with state.open("a"):
            pass
        if not state.stat().st_size:
            state.unlink()
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--state") from error


@click.command(epilog="Example: firedex controller --switch s1=0000000000000001:s1-eth3")
@click.option(
    "--switch",
    "switches",
    multiple=True,
    required=True,
    callback=_parse_switches,
    metavar="NAME=DATAPATH_ID[:PORT]",
    help="Switch to manage, and its port towards its hosts. Repeat the option for each switch.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    callback=_parse_agents,
    metavar="[NAME=]URL",
    help="URL of the switch agent of the switch NAME, or of all switches.  "
    f"[default: {DEFAULT_AGENT}]",
)
@click.option(
    "--listen",
    type=HOST_PORT,
    default="127.0.0.1:6653",
    show_default=True,
    metavar="HOST:PORT",
    help="Address that switches connect to with OpenFlow.",
)
@click.option(
    "--api",
    type=HOST_PORT,
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the HTTP interface that the configuration service uses.",
)
@click.option(
    "--token",
    help="Token that the service must send. It is required unless --api is a loopback address.",
)
@click.option("--agent-token", help="Token that is sent to the switch agents.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("firedex-controller.json"),
    show_default=True,
    help="File in which the desired network and the topology are saved.",
)
@click.option(
    "--framework",
    type=click.Choice(["os-ken", "ryu"]),
    help="OpenFlow framework to use. Default: the installed one, os-ken if both are installed.",
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
    """Run the OpenFlow controller: discover the topology and apply the desired network to switches.

    The controller does not require root: `firedex switch-agent` sets up the queues on the switch
    hosts. When the controller stops, the rules stay on the switches; after a restart, it continues
    with them.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if unknown := set(agents) - set(switches) - {None}:
        raise click.BadParameter(f"no --switch is named {unknown.pop()!r}", param_hint="--agent")
    if listen == api:
        raise click.BadParameter("must differ from --listen", param_hint="--api")
    _check_token("--token", token)
    _check_token("--agent-token", agent_token)
    if not token and not is_loopback(api[0]):
        raise click.BadParameter(
            f"required, because --api {api[0]} is not a loopback address", param_hint="--token"
        )
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
    for option, address in (("--listen", listen), ("--api", api)):
        _check_address_is_free(option, address)
    # Nothing has to be cleaned up, and the frameworks' threads would delay a regular exit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: os._exit(128 + number))
    try:
        # Imported here, because the import chooses the framework; Ryu patches the whole process.
        from firedex_controller.framework import run
    except FrameworkMissing as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    run("firedex_controller.app", host=listen[0], port=listen[1])
