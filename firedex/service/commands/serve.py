"""The command ``firedex serve``."""

import logging
import sys
from ipaddress import AddressValueError, IPv4Address, ip_address
from pathlib import Path

import click

from firedex.scenario import ScenarioFileError, read_scenario
from firedex.service.core import ServiceOptions
from firedex.service.errors import StateError
from firedex.service.planner.controller_client import CONTROLLER_TIMEOUT_SECONDS
from firedex.service.planner.planner import SiteSettings
from firedex.service.planner.site_plan import Gateway
from firedex.service.running import ServeOptions, bind, serve_until_stopped
from firedex.service.web.authentication import RequestRate
from firedex.system.options import HOST_PORT, HTTP_URL
from firedex.transport.http import HttpTarget
from firedex.wire import ControlEndpoint, Scenario
from firedex.wire.incident import ANY_ROLE, Budgets, RoleBudget

__all__ = ["serve"]


@click.command(
    short_help="Run the configuration service.",
    epilog="Example: firedex serve site.yaml --open --controller http://127.0.0.1:8080",
)
@click.argument("site", metavar="SITE")
@click.option(
    "--listen",
    type=HOST_PORT,
    default="127.0.0.1:8088",
    show_default=True,
    help="Address the service listens on.",
)
@click.option(
    "--controller",
    type=HTTP_URL,
    help="URL of the controller. Without it, plans are made but not applied.",
)
@click.option(
    "--controller-token",
    envvar="FIREDEX_CONTROLLER_TOKEN",
    help="Token for the controller (FIREDEX_CONTROLLER_TOKEN).",
)
@click.option(
    "--gateway",
    type=HOST_PORT,
    default="127.0.0.1:1884",
    show_default=True,
    help="Address at which subscribers reach the gateway: an IPv4 address and a port.",
)
@click.option(
    "--state",
    default="firedex.sqlite",
    show_default=True,
    help="Database of the service: a file (SQLite), or postgresql://USER@HOST/DATABASE.",
)
@click.option(
    "--open",
    "open_",
    is_flag=True,
    help="Require no tokens. Allowed only if the service listens on loopback.",
)
@click.option(
    "--open-anywhere",
    is_flag=True,
    help="Require no tokens on any address. Only for emulated networks.",
)
@click.option(
    "--utility-budget",
    type=click.FloatRange(min=0, min_open=True),
    default=100.0,
    show_default=True,
    help="Utility that each subscriber may claim, until budgets are set with PUT /v1/budgets. "
    "There is no budget with --open.",
)
@click.option(
    "--reserved-share",
    type=click.FloatRange(0, 1),
    default=0.3,
    show_default=True,
    help="Share of each switch's bandwidth that a role may reserve with QoS 1 and 2, until budgets "
    "are set. There is no budget with --open.",
)
@click.option(
    "--requests-per-second",
    type=click.FloatRange(min=0, min_open=True),
    default=50.0,
    show_default=True,
    help="Average number of requests per second that each token may send.",
)
@click.option(
    "--validation-report",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Report of `firedex emulate` (report.html) for the dashboard to link to.",
)
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificate chain for TLS (PEM file).",
)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Private key for TLS (PEM file).",
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
    """Run the configuration service of a site.

    SITE is a scenario file with the network and the planning options. Create tokens for callers
    with `firedex tokens create`.
    """
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    scenario = _read(site)
    host, port = listen
    if open_ and not open_anywhere and not _is_loopback(host):
        raise click.BadParameter(
            f"{host} is not loopback, so every host on its network could change everything. Create "
            "tokens with 'firedex tokens create' and omit --open, or use --open-anywhere in an "
            "emulation",
            param_hint="--open",
        )
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key must be given together")
    without_tokens = open_ or open_anywhere
    budgets = Budgets()
    if not without_tokens:
        default_budget = RoleBudget(
            role=ANY_ROLE, utility=utility_budget, reserved_share=reserved_share
        )
        budgets = Budgets(roles=(default_budget,))
    settings = SiteSettings(
        site=scenario,
        gateway=_gateway(gateway),
        control=_control_endpoints(host, port),
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
        controller=HttpTarget(
            url=controller, token=controller_token, timeout_seconds=CONTROLLER_TIMEOUT_SECONDS
        )
        if controller
        else None,
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
            f"firedex: the service for {scenario.name} listens at {scheme}://{host}:{port}; "
            f"dashboard: {scheme}://{host}:{port}/dashboard/; stop it with Ctrl-C",
            err=True,
        )
        try:
            serve_until_stopped(options, listening)
        except KeyboardInterrupt:
            pass  # the service was stopped by the user
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
        raise click.BadParameter(
            f"{error}; an IPv4 address is required", param_hint="--gateway"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _control_endpoints(host: str, port: int) -> tuple[ControlEndpoint, ...]:
    """Return the address of the service for the switches, if it is one address."""
    try:
        address = IPv4Address(host)
    except AddressValueError:
        return ()
    if address.is_unspecified or address.is_loopback:
        return ()
    return (ControlEndpoint(address=address, port=port),)
