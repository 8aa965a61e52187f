"""SITE.yaml: which parts a site has, where each listens, or where it runs already.

Owns what such a file means and every mistake that can be found by reading it. Starts nothing.
"""

import os
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from firedex.scenario_file import BUILT_IN, ScenarioFileError, read_scenario
from firedex.wire import Problem
from firedex.wire.addresses import http_address, is_loopback, parse_host_port
from firedex.wire.values import Flag, value
from firedex.yaml_file import parse_yaml, read_text
from firedex_controller.settings import parse_switch

__all__ = [
    "BrokerPart",
    "ControllerPart",
    "GatewayPart",
    "Secret",
    "ServicePart",
    "Site",
    "read_site",
]

EVERYWHERE = "0.0.0.0"  # noqa: S104  # compared with, never bound


def _host_port(text: str) -> str:
    parse_host_port(text)
    return text


def _url(text: str) -> str:
    http_address(text)
    return text


def _switch(text: str) -> str:
    parse_switch(text)
    return text


def _agent(text: str) -> str:
    name, equals, url = text.partition("=")
    http_address(url if equals else name)
    return text


Text = Annotated[str, Field(strict=True, min_length=1)]
HostPort = Annotated[Text, AfterValidator(_host_port)]
Url = Annotated[Text, AfterValidator(_url)]
SwitchText = Annotated[Text, AfterValidator(_switch)]
AgentText = Annotated[Text, AfterValidator(_agent)]
"""``URL`` for all switches, or ``NAME=URL`` for one."""


@value
class Secret:
    """A token, which is in the environment or in a file of its own, never in SITE.yaml."""

    environment: Text | None = None
    file: Text | None = None

    def read(self, folder: Path) -> str:
        """The token; OSError, LookupError or ValueError if there is none."""
        if self.environment is not None:
            found = os.environ[self.environment]
        else:
            found = (folder / (self.file or "")).read_text("utf-8")
        if not found.strip():
            raise ValueError("is empty")
        return found.strip()


@value
class BrokerPart:
    """Mosquitto, with a configuration of ours or one of the site's own; or any broker elsewhere."""

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
    """The configuration service; ``open`` asks for no tokens, on loopback only."""

    listen: HostPort = "127.0.0.1:8088"
    open: Flag = True
    at: Url | None = None


@value
class GatewayPart:
    """The gateway; ``reached_at`` is its address for subscribers, where that is another."""

    listen: HostPort = "127.0.0.1:1884"
    udp: Flag = True
    reached_at: HostPort | None = None
    token: Secret | None = None
    at: HostPort | None = None


AnyPart = BrokerPart | ControllerPart | ServicePart | GatewayPart


@value
class Site:
    """A whole site. Relative paths are from where its file is."""

    scenario: Text
    state: Text | None = None
    logs: Text | None = None
    broker: BrokerPart = Field(default_factory=BrokerPart)
    controller: ControllerPart | None = None
    service: ServicePart = Field(default_factory=ServicePart)
    gateway: GatewayPart = Field(default_factory=GatewayPart)

    def scenario_source(self, folder: Path) -> str:
        """As every command takes it."""
        built_in = self.scenario.startswith(BUILT_IN)
        return self.scenario if built_in else str(folder / self.scenario)


def read_site(path: Path) -> Site:
    """Read and check a file; raises InvalidFile or UnreadableFile, of ``firedex.yaml_file``."""
    return parse_yaml(
        Site,
        str(path),
        read_text(str(path)),
        expected="a site is a mapping: scenario, broker, service, gateway, …",
        check=lambda site: list(_problems(site, path.resolve().parent)),
    )


def _problems(site: Site, folder: Path) -> Iterator[Problem]:
    yield from _scenario_problems(site, folder)
    yield from _elsewhere_problems(site)
    yield from _address_problems(site)
    yield from _secret_problems(site, folder)
    if site.broker.configuration and not (folder / site.broker.configuration).is_file():
        yield _problem("broker", "configuration", "there is no such file")
    if site.controller is not None and site.controller.at is None and not site.controller.switches:
        yield _problem("controller", "switches", "is required: NAME=DATAPATH_ID[:PORT] of each")


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
            message = f"{name!r} is no managed switch of the scenario; there are {known}"
            yield Problem(path=("controller", "switches", index), message=message)


def _elsewhere_problems(site: Site) -> Iterator[Problem]:
    """Of what runs elsewhere only the address can be said (and the token that it asks for)."""
    free = {"at", "token"}
    for name, part in _parts(site).items():
        if part.at is None:
            continue
        plain = type(part)()
        for field in type(part).__dataclass_fields__:
            if field not in free and getattr(part, field) != getattr(plain, field):
                yield _problem(name, field, f"has no meaning: with 'at', the {name} is not started")


def _parts(site: Site) -> Mapping[str, AnyPart]:
    parts: dict[str, AnyPart] = {}
    parts["broker"], parts["service"], parts["gateway"] = site.broker, site.service, site.gateway
    if site.controller is not None:
        parts["controller"] = site.controller
    return parts


def _address_problems(site: Site) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for name, part in _parts(site).items():
        if part.at is not None:
            continue
        for field in ("listen", "api") if isinstance(part, ControllerPart) else ("listen",):
            address: str = getattr(part, field)
            if address in taken:
                yield _problem(name, field, f"{address} is {taken[address]}'s already")
            taken[address] = name
    service, gateway = site.service, site.gateway
    if service.at is None and service.open and not is_loopback(parse_host_port(service.listen)[0]):
        yield _problem(
            "service", "open", "must be false, since it does not listen on loopback: ask for tokens"
        )
    reached = gateway.at or gateway.reached_at or gateway.listen
    field = "at" if gateway.at else "reached_at" if gateway.reached_at else "listen"
    host = parse_host_port(reached)[0]
    if host == EVERYWHERE:
        yield _problem("gateway", "reached_at", "is required: where subscribers find the gateway")
    elif not _is_ipv4(host):
        yield _problem("gateway", field, f"{host!r} is not an IPv4 address")


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True


def _secret_problems(site: Site, folder: Path) -> Iterator[Problem]:
    given: dict[tuple[str, str], Secret | None] = {("gateway", "token"): site.gateway.token}
    if site.controller is not None:
        given["controller", "token"] = site.controller.token
        given["controller", "agent_token"] = site.controller.agent_token
    for path, secret in given.items():
        if secret is None:
            continue
        if (secret.environment is None) == (secret.file is None):
            yield _problem(*path, "give either 'environment' or 'file'")
            continue
        try:
            secret.read(folder)
        except LookupError:
            yield _problem(*path, "environment", f"{secret.environment!r} is not set")
        except (OSError, ValueError) as error:
            field = "file" if secret.file else "environment"
            yield _problem(*path, field, getattr(error, "strerror", None) or str(error))
    asks = site.service.at is None and not site.service.open
    if asks and site.gateway.at is None and site.gateway.token is None:
        yield _problem(
            "gateway",
            "token",
            "is required, since the service asks for tokens: "
            "firedex tokens create gateway --role operator",
        )
