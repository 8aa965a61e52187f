"""The site file (SITE.yaml): the parts of a site, their addresses and their options.

This module reads and validates the file. It starts nothing.
"""

import os
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from firedex.federation.settings import read_federation
from firedex.scenario import parse_yaml, read_text
from firedex.scenario.file import BUILT_IN, ScenarioFileError, read_scenario
from firedex.scenario.yaml_file import InvalidFile, UnreadableFile
from firedex.wire import Problem
from firedex.wire.addresses import is_loopback, parse_host_port, parse_http_url
from firedex.wire.values import Flag, Identifier, value
from firedex_controller.settings import parse_switch

__all__ = [
    "BrokerPart",
    "ControllerPart",
    "FederationPart",
    "GatewayPart",
    "Secret",
    "ServicePart",
    "Site",
    "read_site",
]

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  # only compared, never bound


def _check_host_port(text: str) -> str:
    parse_host_port(text)
    return text


def _check_url(text: str) -> str:
    parse_http_url(text)
    return text


def _check_switch(text: str) -> str:
    parse_switch(text)
    return text


def _check_agent(text: str) -> str:
    name, equals, url = text.partition("=")
    parse_http_url(url if equals else name)
    return text


Text = Annotated[str, Field(strict=True, min_length=1)]
HostPort = Annotated[Text, AfterValidator(_check_host_port)]
Url = Annotated[Text, AfterValidator(_check_url)]
SwitchText = Annotated[Text, AfterValidator(_check_switch)]
AgentText = Annotated[Text, AfterValidator(_check_agent)]
"""``URL`` for all switches, or ``NAME=URL`` for one switch."""


@value
class Secret:
    """A token from an environment variable or a file; it is never in SITE.yaml itself."""

    environment: Text | None = None
    file: Text | None = None

    def read(self, folder: Path) -> str:
        """Return the token; raise OSError, LookupError or ValueError if there is none."""
        if self.environment is not None:
            token = os.environ[self.environment]
        else:
            token = (folder / (self.file or "")).read_text("utf-8")
        if not token.strip():
            raise ValueError("the token is empty")
        return token.strip()


@value
class BrokerPart:
    """Mosquitto with a generated or given configuration, or any broker at the address ``at``."""

    listen: HostPort = "127.0.0.1:1883"
    configuration: Text | None = None
    at: HostPort | None = None


@value
class ControllerPart:
    """The controller and its switches."""

    switches: tuple[SwitchText, ...] = ()
    agents: tuple[AgentText, ...] = ()
    listen: HostPort = "127.0.0.1:6653"
    api: HostPort = "127.0.0.1:8080"
    framework: Literal["os-ken", "ryu"] | None = None
    token: Secret | None = None
    agent_token: Secret | None = None
    at: Url | None = None


@value
class ServicePart:
    """The configuration service; ``open`` requires no tokens, which is allowed on loopback only."""

    listen: HostPort = "127.0.0.1:8088"
    open: Flag = True
    at: Url | None = None


@value
class GatewayPart:
    """The gateway; ``reached_at`` is its address for subscribers if it differs from ``listen``.

    At ``interest`` it reports the topic filters of its clients, for the exchange with other sites.
    """

    listen: HostPort = "127.0.0.1:1884"
    udp: Flag = True
    reached_at: HostPort | None = None
    interest: HostPort | None = None
    token: Secret | None = None
    at: HostPort | None = None


@value
class FederationPart:
    """The federator: its federation file, and the name of this site in that file."""

    file: Text
    site: Identifier
    metrics: HostPort | None = None
    token: Secret | None = None


AnyPart = BrokerPart | ControllerPart | ServicePart | GatewayPart


@value
class Site:
    """A site. Relative paths start at the folder of its file."""

    scenario: Text
    state: Text | None = None
    logs: Text | None = None
    broker: BrokerPart = Field(default_factory=BrokerPart)
    controller: ControllerPart | None = None
    service: ServicePart = Field(default_factory=ServicePart)
    gateway: GatewayPart = Field(default_factory=GatewayPart)
    federation: FederationPart | None = None

    def scenario_source(self, folder: Path) -> str:
        """Return the scenario argument for commands."""
        built_in = self.scenario.startswith(BUILT_IN)
        return self.scenario if built_in else str(folder / self.scenario)


def read_site(path: Path) -> Site:
    """Read and check a site file; raise InvalidFile or UnreadableFile."""
    return parse_yaml(
        Site,
        str(path),
        read_text(str(path)),
        expected="a site file is a mapping with the keys scenario, broker, service, gateway, …",
        check=lambda site: list(_problems(site, path.resolve().parent)),
    )


def _problems(site: Site, folder: Path) -> Iterator[Problem]:
    yield from _scenario_problems(site, folder)
    yield from _external_part_problems(site)
    yield from _address_problems(site)
    yield from _secret_problems(site, folder)
    yield from _federation_problems(site.federation, folder)
    if site.broker.configuration and not (folder / site.broker.configuration).is_file():
        yield _problem("broker", "configuration", "file not found")
    if site.controller is not None and site.controller.at is None and not site.controller.switches:
        yield _problem(
            "controller", "switches", "required: list each switch as NAME=DATAPATH_ID[:PORT]"
        )


def _problem(*path_and_message: str) -> Problem:
    *path, message = path_and_message
    return Problem(path=tuple(path), message=message)


def _scenario_problems(site: Site, folder: Path) -> Iterator[Problem]:
    try:
        scenario = read_scenario(site.scenario_source(folder))
    except ScenarioFileError as error:
        yield _problem("scenario", str(error).replace("\n", "\n  "))
        return
    managed = {switch.id for switch in scenario.network.switches if switch.managed}
    for index, text in enumerate(site.controller.switches if site.controller else ()):
        name = parse_switch(text)[0]
        if name not in managed:
            known = ", ".join(sorted(managed))
            message = f"{name!r} is not a managed switch of the scenario; choose from {known}"
            yield Problem(path=("controller", "switches", index), message=message)


def _federation_problems(part: FederationPart | None, folder: Path) -> Iterator[Problem]:
    if part is None:
        return
    try:
        entry = read_federation(folder / part.file).site(part.site)
    except LookupError as error:
        yield _problem("federation", "site", str(error.args[0]))
    except (InvalidFile, UnreadableFile) as error:
        yield _problem("federation", "file", str(error).replace("\n", "\n  "))
    else:
        if entry.broker is None:
            yield _problem("federation", "site", f"{part.site} has no broker in {part.file}")


def _external_part_problems(site: Site) -> Iterator[Problem]:
    """Find options that have no effect because the part is external."""
    allowed = {"at", "token"}
    for name, part in _parts(site).items():
        if part.at is None:
            continue
        default = type(part)()
        for field in type(part).__dataclass_fields__:
            if field not in allowed and getattr(part, field) != getattr(default, field):
                yield _problem(
                    name, field, f"has no effect: with 'at' the {name} is not started; remove it"
                )


def _parts(site: Site) -> Mapping[str, AnyPart]:
    parts: dict[str, AnyPart] = {}
    parts["broker"], parts["service"], parts["gateway"] = site.broker, site.service, site.gateway
    if site.controller is not None:
        parts["controller"] = site.controller
    return parts


def _address_problems(site: Site) -> Iterator[Problem]:
    used_addresses: dict[str, str] = {}
    for name, part in _parts(site).items():
        if part.at is not None:
            continue
        for field in ("listen", "api", "interest"):
            address: str | None = getattr(part, field, None)
            if address is None:
                continue
            if address in used_addresses:
                yield _problem(
                    name,
                    field,
                    f"{address} is already the address of the {used_addresses[address]}",
                )
            used_addresses[address] = name
    service, gateway = site.service, site.gateway
    if service.at is None and service.open and not is_loopback(parse_host_port(service.listen)[0]):
        yield _problem(
            "service", "open", "must be false if the service does not listen on loopback"
        )
    gateway_address = gateway.at or gateway.reached_at or gateway.listen
    field = "at" if gateway.at else "reached_at" if gateway.reached_at else "listen"
    host = parse_host_port(gateway_address)[0]
    if host == ALL_ADDRESSES:
        yield _problem(
            "gateway", "reached_at", "required: the address of the gateway for subscribers"
        )
    elif not _is_ipv4(host):
        yield _problem("gateway", field, f"{host!r} is not an IPv4 address")


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True


def _secret_problems(site: Site, folder: Path) -> Iterator[Problem]:
    secrets_by_field: dict[tuple[str, str], Secret | None] = {
        ("gateway", "token"): site.gateway.token
    }
    if site.controller is not None:
        secrets_by_field["controller", "token"] = site.controller.token
        secrets_by_field["controller", "agent_token"] = site.controller.agent_token
    for path, secret in secrets_by_field.items():
        if secret is None:
            continue
        if (secret.environment is None) == (secret.file is None):
            yield _problem(*path, "set either 'environment' or 'file'")
            continue
        try:
            secret.read(folder)
        except LookupError:
            yield _problem(
                *path, "environment", f"the environment variable {secret.environment!r} is not set"
            )
        except (OSError, ValueError) as error:
            field = "file" if secret.file else "environment"
            yield _problem(*path, field, getattr(error, "strerror", None) or str(error))
    requires_tokens = site.service.at is None and not site.service.open
    if requires_tokens and site.gateway.at is None and site.gateway.token is None:
        yield _problem(
            "gateway",
            "token",
            "required, because the service requires tokens; create one with: "
            "firedex tokens create gateway --role operator",
        )
