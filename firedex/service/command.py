"""``firedex serve``."""

import sys
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

import click
import waitress

from firedex.command_options import HOST_PORT, HTTP_URL
from firedex.scenario_file import ScenarioFileError, read_scenario
from firedex.service.configurator import Configurator
from firedex.service.controller_client import ControllerClient
from firedex.service.registry import Registry
from firedex.service.site_plan import Gateway
from firedex.service.web import create_app

__all__ = ["serve"]


@click.command(epilog="Example: firedex serve site.yaml --controller http://127.0.0.1:8080")
@click.argument("site", metavar="SITE")
@click.option(
    "--listen", type=HOST_PORT, default="127.0.0.1:8088", show_default=True, help="Of the service."
)
@click.option("--controller", type=HTTP_URL, help="Of the controller; without one it only plans.")
@click.option("--controller-token", help="What is shown to the controller.")
@click.option(
    "--gateway",
    type=HOST_PORT,
    default="127.0.0.1:1884",
    show_default=True,
    help="Where subscribers reach the gateway; an IPv4 address.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("firedex.sqlite"),
    show_default=True,
    help="Where registrations are kept.",
)
def serve(
    site: str,
    listen: tuple[str, int],
    controller: str | None,
    controller_token: str | None,
    gateway: tuple[str, int],
    state: Path,
) -> None:
    """Run the configuration service for a site (a scenario file: its network and planning)."""
    try:
        scenario = read_scenario(site)
    except ScenarioFileError as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    try:
        reached = Gateway(address=IPv4Address(gateway[0]), port=gateway[1])
    except AddressValueError as error:
        raise click.BadParameter(f"{error}; IPv4 only", param_hint="--gateway") from error
    pushes_to = ControllerClient(controller, controller_token) if controller else None
    configurator = Configurator(scenario, Registry(state), reached, pushes_to)
    configurator.restore()
    host, port = listen
    try:
        waitress.serve(create_app(configurator), host=host, port=port, threads=8)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{host}:{port}: {error}", param_hint="--listen") from error
