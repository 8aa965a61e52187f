"""The command line, environment, files and health check of each part of a site. Pure."""

import os
import pwd
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from firedex.federation.settings import read_federation
from firedex.site.site_file import (
    ALL_ADDRESSES,
    ControllerPart,
    FederationPart,
    Secret,
    Site,
)
from firedex.system.processes import firedex_command
from firedex.wire.addresses import parse_host_port, parse_http_url

__all__ = ["Part", "Probe", "SitePaths", "site_parts"]

MOSQUITTO_CONFIGURATION = """\
listener {port} {host}
allow_anonymous true
persistence true
persistence_location {folder}/
set_tcp_nodelay true
max_queued_messages 1000
log_type error
log_type warning
user {user}
"""
"""The line ``user`` keeps Mosquitto from changing its user; otherwise it outlives its parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A part works if it accepts connections and, with ``path``, answers a GET without error."""

    host: str
    port: int
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part. A part without ``command`` is external: it is checked, but not started."""

    name: str
    address: str
    probe: Probe
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)
    listens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePaths:
    """The folders of the site file, the state and the logs, and the path of Mosquitto."""

    folder: Path
    state: Path
    logs: Path
    mosquitto: str = "mosquitto"


def site_parts(site: Site, paths: SitePaths) -> tuple[Part, ...]:
    """Return all parts in the order in which they are started."""
    token = _controller_token(site.controller, paths.folder)
    parts = [_broker(site, paths)]
    if site.controller is not None:
        parts.append(_controller(site.controller, paths, token))
    parts += [_service(site, paths, token), _gateway(site, paths)]
    if site.federation is not None:
        parts.append(_federator(site.federation, paths))
    return tuple(parts)


def _controller_token(controller: ControllerPart | None, folder: Path) -> str:
    """Return the token between service and controller; by default a new one at every start."""
    if controller is None:
        return ""
    if controller.token is not None:
        return controller.token.read(folder)
    return "" if controller.at is not None else secrets.token_urlsafe(24)


def _probe(address: str, path: str | None = None) -> Probe:
    host, port = parse_host_port(address)
    return Probe(host="127.0.0.1" if host == ALL_ADDRESSES else host, port=port, path=path)


def _probe_url(url: str) -> Probe:
    host, port = parse_http_url(url)
    return Probe(host=host, port=port, path="/v1/health")


def _broker(site: Site, paths: SitePaths) -> Part:
    broker = site.broker
    if broker.at is not None:
        return Part(name="broker", address=broker.at, probe=_probe(broker.at))
    files = {}
    if broker.configuration is not None:
        file = paths.folder / broker.configuration
    else:
        file = paths.state / "mosquitto.conf"
        host, port = parse_host_port(broker.listen)
        user = pwd.getpwuid(os.geteuid()).pw_name
        files[file] = MOSQUITTO_CONFIGURATION.format(
            host=host, port=port, folder=paths.state, user=user
        )
    return Part(
        name="broker",
        address=broker.listen,
        probe=_probe(broker.listen),
        command=(paths.mosquitto, "-c", str(file)),
        files=files,
        listens=(broker.listen,),
    )


def _controller(controller: ControllerPart, paths: SitePaths, token: str) -> Part:
    if controller.at is not None:
        return Part(name="controller", address=controller.at, probe=_probe_url(controller.at))
    arguments = [f"--listen={controller.listen}", f"--api={controller.api}"]
    arguments += [f"--switch={switch}" for switch in controller.switches]
    arguments += [f"--agent={agent}" for agent in controller.agents]
    arguments += [f"--state={paths.state / 'controller.json'}"]
    arguments += [f"--framework={controller.framework}"] if controller.framework else []
    environment = {"FIREDEX_CONTROLLER_TOKEN": token}
    environment |= _secret_environment(
        "FIREDEX_CONTROLLER_AGENT_TOKEN", controller.agent_token, paths.folder
    )
    return Part(
        name="controller",
        address=controller.api,
        probe=_probe(controller.api, "/v1/health"),
        command=tuple(firedex_command("controller", *arguments)),
        environment=environment,
        listens=(controller.listen, controller.api),
    )


def _secret_environment(variable: str, secret: Secret | None, folder: Path) -> dict[str, str]:
    """Return the environment variable for a secret, because every user can read command lines."""
    return {} if secret is None else {variable: secret.read(folder)}


def _service(site: Site, paths: SitePaths, token: str) -> Part:
    service, gateway = site.service, site.gateway
    if service.at is not None:
        return Part(name="service", address=service.at, probe=_probe_url(service.at))
    arguments = [site.scenario_source(paths.folder), f"--listen={service.listen}"]
    arguments += [f"--gateway={gateway.at or gateway.reached_at or gateway.listen}"]
    arguments += [f"--state={paths.state / 'service.sqlite'}"]
    arguments += ["--open"] if service.open else []
    if site.controller is not None:
        arguments += [
            f"--controller={site.controller.at or f'http://{_local_address(site.controller.api)}'}"
        ]
    return Part(
        name="service",
        address=f"http://{_local_address(service.listen)}",
        probe=_probe(service.listen, "/v1/health"),
        command=tuple(firedex_command("serve", *arguments)),
        environment={"FIREDEX_CONTROLLER_TOKEN": token} if token else {},
        listens=(service.listen,),
    )


def _local_address(address: str) -> str:
    """Return the address at which clients on this machine reach a part."""
    probe = _probe(address)
    return f"{probe.host}:{probe.port}"


def _gateway(site: Site, paths: SitePaths) -> Part:
    gateway = site.gateway
    if gateway.at is not None:
        return Part(name="gateway", address=gateway.at, probe=_probe(gateway.at))
    arguments = [f"--listen={gateway.listen}"]
    arguments += [f"--udp-listen={gateway.listen}"] if gateway.udp else []
    arguments += [f"--broker={site.broker.at or _local_address(site.broker.listen)}"]
    arguments += [f"--service={site.service.at or f'http://{_local_address(site.service.listen)}'}"]
    listens = [gateway.listen]
    if gateway.interest is not None:
        arguments += [f"--interest={gateway.interest}", f"--state={paths.state / 'gateway.sqlite'}"]
        listens.append(gateway.interest)
    return Part(
        name="gateway",
        address=gateway.listen + (", TCP and UDP" if gateway.udp else ""),
        probe=_probe(gateway.listen),
        command=tuple(firedex_command("gateway", *arguments)),
        environment=_secret_environment("FIREDEX_GATEWAY_TOKEN", gateway.token, paths.folder),
        listens=tuple(listens),
    )


def _federator(part: FederationPart, paths: SitePaths) -> Part:
    file = paths.folder / part.file
    address = read_federation(file).site(part.site).listen
    arguments = [str(file), f"--site={part.site}", f"--state={paths.state / 'federator'}"]
    arguments += [f"--metrics={part.metrics}"] if part.metrics is not None else []
    return Part(
        name="federator",
        address=address,
        probe=_probe(address),
        command=tuple(firedex_command("federator", *arguments)),
        environment=_secret_environment("FIREDEX_TOKEN", part.token, paths.folder),
        listens=(address, *([part.metrics] if part.metrics is not None else [])),
    )
