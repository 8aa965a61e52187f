"""Health of all components, from heartbeats and from the controller. Pure."""

from collections.abc import Iterable
from typing import Literal

from firedex.wire import NetworkTopology
from firedex.wire.overview import PartHealth
from firedex.wire.service_api import HeartbeatRecord

__all__ = ["MISSED_HEARTBEATS", "controller_health", "heartbeat_health", "switch_health"]

MISSED_HEARTBEATS = 3
"""A component is stale after this many intervals without a heartbeat."""
DEFAULT_INTERVAL_SECONDS = 5.0
REQUIRED_KINDS: tuple[Literal["broker", "gateway"], ...] = ("broker", "gateway")
KIND_ORDER = ("broker", "gateway", "service", "controller", "switch", "client")


def heartbeat_health(
    heartbeats: Iterable[HeartbeatRecord], subscribers: Iterable[str]
) -> tuple[PartHealth, ...]:
    """Return every component that ever sent a heartbeat, and expected ones that never did.

    Expected are a broker, a gateway and every registered subscriber. Subscribers that are no
    longer registered are left out.
    """
    registered = set(subscribers)
    parts = []
    for record in heartbeats:
        heartbeat = record.heartbeat
        if heartbeat.kind == "client" and heartbeat.part not in registered:
            continue
        registered.discard(heartbeat.part)
        timeout_seconds = MISSED_HEARTBEATS * (heartbeat.every_seconds or DEFAULT_INTERVAL_SECONDS)
        parts.append(
            PartHealth(
                part=heartbeat.part,
                kind=heartbeat.kind,
                state="healthy" if record.seconds_ago <= timeout_seconds else "stale",
                seconds_ago=record.seconds_ago,
                configuration_version=heartbeat.configuration_version,
            )
        )
    parts += [PartHealth(part=name, kind="client", state="unknown") for name in registered]
    heard = {part.kind for part in parts}
    parts += [
        PartHealth(part=kind, kind=kind, state="unknown")
        for kind in REQUIRED_KINDS
        if kind not in heard
    ]
    return tuple(sorted(parts, key=lambda part: (KIND_ORDER.index(part.kind), part.part)))


def controller_health(configured: bool, error: str | None, answered: bool) -> PartHealth:
    """Return the health of the controller; ``configured``: the service has the address of one."""
    if not configured:
        return PartHealth(
            part="controller",
            kind="controller",
            state="unknown",
            detail="not configured; configurations are not sent to switches",
        )
    if not error and not answered:
        return PartHealth(part="controller", kind="controller", state="unknown")
    return PartHealth(
        part="controller",
        kind="controller",
        state="trouble" if error else "healthy",
        detail=error,
    )


def switch_health(topology: NetworkTopology | None) -> tuple[PartHealth, ...]:
    """Return the health of the switches that the controller knows."""
    return tuple(
        PartHealth(
            part=switch.switch,
            kind="switch",
            state="healthy" if switch.connected and switch.settled else "trouble",
            detail=switch.trouble
            or (
                None
                if switch.connected and switch.settled
                else "its rules differ from the desired rules"
                if switch.connected
                else "not connected"
            ),
        )
        for switch in (topology.switches if topology else ())
    )
