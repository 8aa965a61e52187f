"""What a configuration means to one subscriber: which connections, which filters on each. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from firedex.wire import Configuration
from firedex_clients.errors import ClientError
from firedex_clients.event import UNMANAGED_FLOW, UNMANAGED_PRIORITY
from firedex_clients.flow_connection import FlowSettings

__all__ = ["ClientPlan", "PlannedFlow", "Translation", "plain_plan", "plan_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFlow:
    """One connection, and what goes over it."""

    settings: FlowSettings
    number: int
    priority: int
    filters: tuple[str, ...]
    lasting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """All connections of one subscriber."""

    version: int
    flows: tuple[PlannedFlow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """What differs from the plan where something on the way translates addresses."""

    source_address: str | None = None
    gateway: tuple[str, int] | None = None

    def applied_to(self, plan: ClientPlan) -> ClientPlan:
        """The same connections, from and to where they really go."""
        return replace(
            plan,
            flows=tuple(replace(flow, settings=self._of(flow.settings)) for flow in plan.flows),
        )

    def _of(self, settings: FlowSettings) -> FlowSettings:
        host, port = self.gateway or (settings.host, settings.port)
        source = self.source_address or settings.bind_address
        return replace(settings, host=host, port=port, bind_address=source)


def plan_of(configuration: Configuration, subscriber: str, wanted: Iterable[str]) -> ClientPlan:
    """The subscriber's part of a configuration.

    A wanted filter that it does not know (the service was away when it was asked for) goes along
    with the flow of the lowest class, which it harms least.
    """
    wanted = tuple(wanted)
    flows = []
    for flow in configuration.flows:
        if flow.subscriber != subscriber:
            continue
        ends = flow.endpoints
        if ends is None:
            raise ClientError(f"flow {flow.flow} has no endpoints")
        settings = FlowSettings(
            host=str(ends.gateway_address),
            port=ends.gateway_port,
            transport=ends.transport,
            bind_address=str(ends.subscriber_address),
            bind_ports=ends.subscriber_ports,
        )
        flows.append(
            PlannedFlow(
                settings=settings,
                number=flow.flow,
                priority=flow.priority,
                filters=tuple(name for name in flow.filters if name in wanted),
                lasting=flow.qos > 0,
            )
        )
    known = {name for flow in flows for name in flow.filters}
    unknown = tuple(name for name in wanted if name not in known)
    if unknown and flows:
        last = max(range(len(flows)), key=lambda n: (flows[n].priority, flows[n].number))
        flows[last] = replace(flows[last], filters=flows[last].filters + unknown)
    used = tuple(flow for flow in flows if flow.filters)
    return ClientPlan(version=configuration.version, flows=used)


def plain_plan(host: str, port: int, wanted: Iterable[str], *, lasting: bool) -> ClientPlan:
    """Everything over one plain connection: when there never was a service to ask."""
    flow = PlannedFlow(
        settings=FlowSettings(host=host, port=port),
        number=UNMANAGED_FLOW,
        priority=UNMANAGED_PRIORITY,
        filters=tuple(wanted),
        lasting=lasting,
    )
    return ClientPlan(version=0, flows=(flow,) if flow.filters else ())
