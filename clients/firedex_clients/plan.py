"""The plan of one subscriber: its connections, the filters on each, and the file that stores it."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from firedex.system.files import write_atomically
from firedex.wire import Configuration, WireError, from_json, to_json
from firedex_clients.errors import ClientError
from firedex_clients.events import UNMANAGED_FLOW, UNMANAGED_PRIORITY
from firedex_clients.flow import FlowSettings

__all__ = [
    "AddressTranslation",
    "ClientPlan",
    "PlannedFlow",
    "client_plan",
    "read_plan",
    "unmanaged_plan",
    "write_plan",
]


log = logging.getLogger("firedex.clients")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFlow:
    """One connection and the filters to subscribe on it."""

    settings: FlowSettings
    number: int
    priority: int
    filters: tuple[str, ...]
    persistent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """All connections of one subscriber."""

    version: int
    flows: tuple[PlannedFlow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressTranslation:
    """Addresses that replace those of the plan, for a network with address translation."""

    source_address: str | None = None
    gateway: tuple[str, int] | None = None

    def apply(self, plan: ClientPlan) -> ClientPlan:
        """Return the plan with the translated addresses."""
        return replace(
            plan,
            flows=tuple(
                replace(flow, settings=self._translate(flow.settings)) for flow in plan.flows
            ),
        )

    def _translate(self, settings: FlowSettings) -> FlowSettings:
        host, port = self.gateway or (settings.host, settings.port)
        source = self.source_address or settings.bind_address
        return replace(settings, host=host, port=port, bind_address=source)


def client_plan(
    configuration: Configuration, subscriber: str, filters: Iterable[str]
) -> ClientPlan:
    """Return the connections of one subscriber in a configuration.

    A filter that the configuration does not contain (the service was unreachable when it was
    subscribed) is added to the flow of the lowest class, where it disturbs others least.
    """
    filters = tuple(filters)
    flows = []
    for flow in configuration.flows:
        if flow.subscriber != subscriber:
            continue
        endpoints = flow.endpoints
        if endpoints is None:
            raise ClientError(f"flow {flow.flow} of the configuration has no endpoints")
        settings = FlowSettings(
            host=str(endpoints.gateway_address),
            port=endpoints.gateway_port,
            transport=endpoints.transport,
            bind_address=str(endpoints.subscriber_address),
            bind_ports=endpoints.subscriber_ports,
        )
        flows.append(
            PlannedFlow(
                settings=settings,
                number=flow.flow,
                priority=flow.priority,
                filters=tuple(name for name in flow.filters if name in filters),
                persistent=flow.qos > 0,
            )
        )
    known = {name for flow in flows for name in flow.filters}
    unknown = tuple(name for name in filters if name not in known)
    if unknown and flows:
        last = max(range(len(flows)), key=lambda n: (flows[n].priority, flows[n].number))
        flows[last] = replace(flows[last], filters=flows[last].filters + unknown)
    used = tuple(flow for flow in flows if flow.filters)
    return ClientPlan(version=configuration.version, flows=used)


def unmanaged_plan(host: str, port: int, filters: Iterable[str], *, persistent: bool) -> ClientPlan:
    """Return a plan with one unmanaged connection for all filters."""
    flow = PlannedFlow(
        settings=FlowSettings(host=host, port=port),
        number=UNMANAGED_FLOW,
        priority=UNMANAGED_PRIORITY,
        filters=tuple(filters),
        persistent=persistent,
    )
    return ClientPlan(version=0, flows=(flow,) if flow.filters else ())


def read_plan(path: Path | None) -> Configuration | None:
    """Return the stored plan, or None if there is none that can be read."""
    if path is None or not path.exists():
        return None
    try:
        return from_json(Configuration, path.read_text("utf-8"), tolerant=True)
    except (OSError, ValueError, WireError) as error:
        log.warning("%s: the stored plan cannot be read: %s", path, error)
        return None


def write_plan(path: Path, configuration: Configuration) -> None:
    """Store the plan in a file; a failure is logged and leaves the old file."""
    try:
        write_atomically(path, to_json(configuration))
    except OSError as error:
        log.warning("%s: the plan cannot be stored: %s", path, error)
