"""``firedex serve``."""

import sys
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

import click
import waitress

from firedex.scenario_file import ScenarioFileError, read_scenario
from firedex.service.configurator import Configurator
from firedex.service.controller_client import ControllerClient
from firedex.service.registry import Registry
from firedex.service.site_plan import Gateway
from firedex.service.web import create_app

__all__ = ["serve"]


@click.command(epilog="Example: firedex serve site.yaml --controller http://127.0.0.1:8080")
@click.argument("site", metavar="SITE")
@click.option("--listen", default="127.0.0.1:8088", show_default=True, help="Host and port.")
@click.option("--controller", "controller_url", help="URL of the controller; none: plan only.")
@click.option("--gateway", default="127.0.0.1:1884", show_default=True, help="Host and port.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("firedex.sqlite"),
    show_default=True,
    help="Where registrations are kept.",
)
def serve(site: str, listen: str, controller_url: str | None, gateway: str, state: Path) -> None:
    """Run the configuration service for a site (a scenario file: its network and planning)."""
    try:
        scenario = read_scenario(site)
        address, _, port = gateway.rpartition(":")
        reached = Gateway(address=IPv4Address(address), port=int(port))
    except (ScenarioFileError, AddressValueError, ValueError) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    controller = ControllerClient(controller_url) if controller_url else None
    configurator = Configurator(scenario, Registry(state), reached, controller)
    configurator.restore()
    waitress.serve(create_app(configurator), listen=listen, threads=8)
