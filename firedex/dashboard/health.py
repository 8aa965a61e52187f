"""Which parts are well, as their heartbeats and the controller say. Pure."""

from collections.abc import Iterable
from typing import Literal

from firedex.wire import NetworkTopology
from firedex.wire.overview import PartHealth
from firedex.wire.service_api import KeptHeartbeat

__all__ = ["MISSED_BEATS", "controller_health", "heartbeat_health", "switch_health"]

MISSED_BEATS = 3
"""A part that was silent for so many of its own intervals is stale."""
USUAL_SECONDS = 5.0
NEEDED: tuple[Literal["broker", "gateway"], ...] = ("broker", "gateway")
ORDER = ("broker", "gateway", "service", "controller", "switch", "client")


def heartbeat_health(
    heartbeats: Iterable[KeptHeartbeat], subscribers: Iterable[str]
) -> tuple[PartHealth, ...]:
    """Every part that was ever heard; a broker, a gateway and every subscriber that never was.

    A subscriber that is no longer registered is nobody's concern.
    """
    registered = set(subscribers)
    parts = []
    for kept in heartbeats:
        beat = kept.heartbeat
        if beat.kind == "client" and beat.part not in registered:
            continue
        registered.discard(beat.part)
        patience = MISSED_BEATS * (beat.every_seconds or USUAL_SECONDS)
        parts.append(
            PartHealth(
                part=beat.part,
                kind=beat.kind,
                state="well" if kept.seconds_ago <= patience else "stale",
                seconds_ago=kept.seconds_ago,
                configuration_version=beat.configuration_version,
            )
        )
    parts += [PartHealth(part=name, kind="client", state="unknown") for name in registered]
    heard = {part.kind for part in parts}
    parts += [
        PartHealth(part=kind, kind=kind, state="unknown") for kind in NEEDED if kind not in heard
    ]
    return tuple(sorted(parts, key=lambda part: (ORDER.index(part.kind), part.part)))


def controller_health(asked: bool, error: str | None, answered: bool) -> PartHealth:
    """The controller, by whether it answered; ``asked``: there is one at all."""
    if not asked:
        return PartHealth(
            part="controller",
            kind="controller",
            state="unknown",
            detail="none is set, plans are made and no switch is told",
        )
    if not error and not answered:
        return PartHealth(part="controller", kind="controller", state="unknown")
    return PartHealth(
        part="controller",
        kind="controller",
        state="trouble" if error else "well",
        detail=error,
    )


def switch_health(topology: NetworkTopology | None) -> tuple[PartHealth, ...]:
    """The switches that the controller knows of."""
    return tuple(
        PartHealth(
            part=switch.switch,
            kind="switch",
            state="well" if switch.connected and switch.settled else "trouble",
            detail=switch.trouble
            or (
                None
                if switch.connected and switch.settled
                else "its rules are not the desired ones"
                if switch.connected
                else "not connected"
            ),
        )
        for switch in (topology.switches if topology else ())
    )
