"""``firedex serve``."""

import logging
import sys
from ipaddress import AddressValueError, IPv4Address, ip_address
from pathlib import Path

import click

from firedex.command_options import HOST_PORT, HTTP_URL
from firedex.scenario_file import ScenarioFileError, read_scenario
from firedex.service.controller_client import ControllerLink
from firedex.service.core import ServiceOptions
from firedex.service.errors import StateError
from firedex.service.planner import SiteSettings
from firedex.service.request_limits import RequestRate
from firedex.service.running import ServeOptions, bind, serve_until_stopped
from firedex.service.site_plan import Gateway
from firedex.wire import ControlEndpoint, Scenario
from firedex.wire.incident import ANYBODY, Budgets, RoleBudget

__all__ = ["serve"]


@click.command(
    short_help="Run the configuration service.",
    epilog="Example: firedex serve site.yaml --open --controller http://127.0.0.1:8080",
)
@click.argument("site", metavar="SITE")
@click.option(
    "--listen", type=HOST_PORT, default="127.0.0.1:8088", show_default=True, help="Of the service."
)
@click.option("--controller", type=HTTP_URL, help="Of the controller; without one it only plans.")
@click.option(
    "--controller-token",
    envvar="FIREDEX_CONTROLLER_TOKEN",
    help="What the controller asks for (FIREDEX_CONTROLLER_TOKEN).",
)
@click.option(
    "--gateway",
    type=HOST_PORT,
    default="127.0.0.1:1884",
    show_default=True,
    help="Where subscribers reach the gateway; an IPv4 address.",
)
@click.option(
    "--state",
    default="firedex.sqlite",
    show_default=True,
    help="Where the state is kept: a file, or postgresql://USER@HOST/DATABASE.",
)
@click.option("--open", "open_", is_flag=True, help="Ask for no tokens; on loopback only.")
@click.option("--open-anywhere", is_flag=True, help="Ask for no tokens, in an emulation's network.")
@click.option(
    "--utility-budget",
    type=click.FloatRange(min=0, min_open=True),
    default=100.0,
    show_default=True,
    help="Of a subscriber, until command sets budgets; with --open there is none.",
)
@click.option(
    "--reserved-share",
    type=click.FloatRange(0, 1),
    default=0.3,
    show_default=True,
    help="Of every switch, that a role may reserve with QoS 1 and 2; likewise.",
)
@click.option(
    "--requests-per-second",
    type=click.FloatRange(min=0, min_open=True),
    default=50.0,
    show_default=True,
    help="Of each token, on average.",
)
@click.option(
    "--validation-report",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page of 'firedex emulate' (report.html) that the dashboard links to.",
)
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For TLS: the certificate chain, PEM.",
)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For TLS: the certificate's key, PEM.",
)
def serve(
    site: str,
    listen: tuple[str, int],
    controller: str | None,
    controller_token: str | None,
    gateway: tuple[str, int],
    state: str,
    open_: bool,
    open_anywhere: bool,
    utility_budget: float,
    reserved_share: float,
    requests_per_second: float,
    validation_report: Path | None,
    certificate: Path | None,
    key: Path | None,
) -> None:
    """Run the configuration service for a site (a scenario file: its network and planning).

    Tokens are made with: firedex tokens create.
    """
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    scenario = _read(site)
    host, port = listen
    if open_ and not open_anywhere and not _is_loopback(host):
        raise click.BadParameter(
            f"{host} is not loopback: anybody there could do anything. Make tokens with "
            "'firedex tokens create' and leave out --open, or say --open-anywhere in an emulation",
            param_hint="--open",
        )
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key go together")
    without_tokens = open_ or open_anywhere
    budgets = Budgets()
    if not without_tokens:
        anybody = RoleBudget(role=ANYBODY, utility=utility_budget, reserved_share=reserved_share)
        budgets = Budgets(roles=(anybody,))
    settings = SiteSettings(
        site=scenario,
        gateway=_gateway(gateway),
        control=_control(host, port),
        default_budgets=budgets,
    )
    rate = RequestRate(per_second=requests_per_second, burst=4 * requests_per_second)
    options = ServeOptions(
        service=ServiceOptions(
            settings=settings,
            open_to_all=without_tokens,
            request_rate=rate,
            validation_report=validation_report,
        ),
        state=state,
        host=host,
        port=port,
        controller=ControllerLink(controller, controller_token) if controller else None,
        certificate=certificate,
        key=key,
    )
    try:
        listening = bind(host, port)
    except OSError as error:
        raise click.BadParameter(f"{host}:{port}: {error}", param_hint="--listen") from error
    scheme = "http" if certificate is None else "https"
    with listening:
        host, port = listening.getsockname()
        click.echo(
            f"firedex: {scenario.name} is served at {scheme}://{host}:{port} "
            f"(people: {scheme}://{host}:{port}/dashboard/); Ctrl-C ends it",
            err=True,
        )
        try:
            serve_until_stopped(options, listening)
        except KeyboardInterrupt:
            pass  # it has ended as it was told to
        except StateError as error:
            raise click.BadParameter(str(error), param_hint="--state") from error


def _read(site: str) -> Scenario:
    try:
        return read_scenario(site)
    except ScenarioFileError as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)


def _gateway(gateway: tuple[str, int]) -> Gateway:
    try:
        return Gateway(address=IPv4Address(gateway[0]), port=gateway[1])
    except AddressValueError as error:
        raise click.BadParameter(f"{error}; IPv4 only", param_hint="--gateway") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _control(host: str, port: int) -> tuple[ControlEndpoint, ...]:
    """Where the network finds the service, if that is one address."""
    try:
        address = IPv4Address(host)
    except AddressValueError:
        return ()
    if address.is_unspecified or address.is_loopback:
        return ()
    return (ControlEndpoint(address=address, port=port),)
