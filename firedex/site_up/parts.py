"""What starts each part of a site, and what shows that it works. Pure."""

import os
import pwd
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from firedex.child_process import firedex_command
from firedex.site_up.site_file import EVERYWHERE, ControllerPart, Secret, Site
from firedex.wire.addresses import http_address, parse_host_port

__all__ = ["Part", "Place", "Probe", "parts_of"]

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
"""As the user who starts it: when Mosquitto changes users, it no longer ends with its parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A part works if it accepts connections, and, with ``path``, answers that with 200."""

    host: str
    port: int
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part. Without a ``command`` it runs elsewhere and is only looked at."""

    name: str
    address: str
    probe: Probe
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)
    listens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a site's file is, what it keeps and where its parts log; and Mosquitto's program."""

    folder: Path
    state: Path
    logs: Path
    mosquitto: str = "mosquitto"


def parts_of(site: Site, place: Place) -> tuple[Part, ...]:
    """All parts, in the order in which they are started."""
    token = _controller_token(site.controller, place.folder)
    parts = [_broker(site, place)]
    if site.controller is not None:
        parts.append(_controller(site.controller, place, token))
    return (*parts, _service(site, place, token), _gateway(site, place))


def _controller_token(controller: ControllerPart | None, folder: Path) -> str:
    """What service and controller agree on; where nobody says, it is new with every start."""
    if controller is None:
        return ""
    if controller.token is not None:
        return controller.token.read(folder)
    return "" if controller.at is not None else secrets.token_urlsafe(24)


def _probe(address: str, path: str | None = None) -> Probe:
    host, port = parse_host_port(address)
    return Probe(host="127.0.0.1" if host == EVERYWHERE else host, port=port, path=path)


def _probe_url(url: str) -> Probe:
    host, port = http_address(url)
    return Probe(host=host, port=port, path="/v1/health")


def _broker(site: Site, place: Place) -> Part:
    broker = site.broker
    if broker.at is not None:
        return Part(name="broker", address=broker.at, probe=_probe(broker.at))
    files = {}
    if broker.configuration is not None:
        file = place.folder / broker.configuration
    else:
        file = place.state / "mosquitto.conf"
        host, port = parse_host_port(broker.listen)
        user = pwd.getpwuid(os.geteuid()).pw_name
        files[file] = MOSQUITTO_CONFIGURATION.format(
            host=host, port=port, folder=place.state, user=user
        )
    return Part(
        name="broker",
        address=broker.listen,
        probe=_probe(broker.listen),
        command=(place.mosquitto, "-c", str(file)),
        files=files,
        listens=(broker.listen,),
    )


def _controller(controller: ControllerPart, place: Place, token: str) -> Part:
    if controller.at is not None:
        return Part(name="controller", address=controller.at, probe=_probe_url(controller.at))
    words = [f"--listen={controller.listen}", f"--api={controller.api}"]
    words += [f"--switch={switch}" for switch in controller.switches]
    words += [f"--agent={agent}" for agent in controller.agents]
    words += [f"--state={place.state / 'controller.json'}"]
    words += [f"--framework={controller.framework}"] if controller.framework else []
    environment = {"FIREDEX_CONTROLLER_TOKEN": token}
    environment |= _secret("FIREDEX_CONTROLLER_AGENT_TOKEN", controller.agent_token, place.folder)
    return Part(
        name="controller",
        address=controller.api,
        probe=_probe(controller.api, "/v1/health"),
        command=tuple(firedex_command("controller", *words)),
        environment=environment,
        listens=(controller.listen, controller.api),
    )


def _secret(variable: str, secret: Secret | None, folder: Path) -> dict[str, str]:
    """In the environment, since anybody may read a command's words."""
    return {} if secret is None else {variable: secret.read(folder)}


def _service(site: Site, place: Place, token: str) -> Part:
    service, gateway = site.service, site.gateway
    if service.at is not None:
        return Part(name="service", address=service.at, probe=_probe_url(service.at))
    words = [site.scenario_source(place.folder), f"--listen={service.listen}"]
    words += [f"--gateway={gateway.at or gateway.reached_at or gateway.listen}"]
    words += [f"--state={place.state / 'service.sqlite'}"]
    words += ["--open"] if service.open else []
    if site.controller is not None:
        words += [f"--controller={site.controller.at or f'http://{_here(site.controller.api)}'}"]
    return Part(
        name="service",
        address=f"http://{_here(service.listen)}",
        probe=_probe(service.listen, "/v1/health"),
        command=tuple(firedex_command("serve", *words)),
        environment={"FIREDEX_CONTROLLER_TOKEN": token} if token else {},
        listens=(service.listen,),
    )


def _here(address: str) -> str:
    """How a part on this machine is reached."""
    probe = _probe(address)
    return f"{probe.host}:{probe.port}"


def _gateway(site: Site, place: Place) -> Part:
    gateway = site.gateway
    if gateway.at is not None:
        return Part(name="gateway", address=gateway.at, probe=_probe(gateway.at))
    words = [f"--listen={gateway.listen}"]
    words += [f"--udp-listen={gateway.listen}"] if gateway.udp else []
    words += [f"--broker={site.broker.at or _here(site.broker.listen)}"]
    words += [f"--service={site.service.at or f'http://{_here(site.service.listen)}'}"]
    return Part(
        name="gateway",
        address=gateway.listen + (", TCP and UDP" if gateway.udp else ""),
        probe=_probe(gateway.listen),
        command=tuple(firedex_command("gateway", *words)),
        environment=_secret("FIREDEX_GATEWAY_TOKEN", gateway.token, place.folder),
        listens=(gateway.listen,),
    )
