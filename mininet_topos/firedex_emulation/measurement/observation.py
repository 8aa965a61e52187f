"""The record of a run beside its delivery records: sent events, sessions, configurations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from firedex.wire import Configuration, from_plain, to_plain

__all__ = ["Action", "ActiveConfiguration", "Observation", "SentEvent", "SubscriberSession"]

SentEvent = tuple[str, str, float]
"""Event id, topic and time of publication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberSession:
    """One session of a subscriber: the times of its steps.

    ``asked_at``: registration requested. ``left_at``: disconnected. ``signed_off_at``: registration
    deleted. ``ready_at`` is None if it was never ready. ``settled`` lists each configuration
    version and when all flows of the subscriber matched it.
    """

    asked_at: float
    left_at: float
    ready_at: float | None = None
    signed_off_at: float | None = None
    settled: tuple[tuple[int, float], ...] = ()

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> "SubscriberSession":
        """Return the session that a subscriber's program wrote."""
        settled = tuple((int(version), float(at)) for version, at in data.get("settled", ()))
        return cls(**{**data, "settled": settled})


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A timeline event that was performed, and the change number that the service assigned.

    ``phase``: the phase that began. ``is_failure``: a part was killed or a link went down.
    """

    description: str
    kind: str
    asked_at: float
    done_at: float
    change: int | None = None
    phase: str | None = None
    is_failure: bool = False
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveConfiguration:
    """A configuration and the time since when it was active."""

    configuration: Configuration
    since: float
    through_change: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The run of one mode. Times are seconds since the epoch, from one clock."""

    began_at: float
    ended_at: float
    sent: tuple[SentEvent, ...]
    sessions: Mapping[str, tuple[SubscriberSession, ...]]
    configurations: tuple[ActiveConfiguration, ...]
    actions: tuple[Action, ...] = ()
    stalled_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    link_facts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def with_notes(self, notes: tuple[str, ...]) -> "Observation":
        """Return a copy with more notes, without duplicates."""
        return replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))

    def to_json(self) -> str:
        """Return the observation as JSON text for a file."""
        plain = asdict(replace(self, configurations=()))
        plain["configurations"] = [
            {
                "configuration": to_plain(each.configuration),
                "since": each.since,
                "through_change": each.through_change,
            }
            for each in self.configurations
        ]
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str) -> "Observation":
        """Return the observation that ``to_json`` encoded."""
        plain = json.loads(text)
        return cls(
            began_at=plain["began_at"],
            ended_at=plain["ended_at"],
            sent=tuple((str(event), str(topic), at) for event, topic, at in plain["sent"]),
            sessions={
                name: tuple(SubscriberSession.from_plain(session) for session in sessions)
                for name, sessions in plain["sessions"].items()
            },
            configurations=tuple(
                ActiveConfiguration(
                    configuration=from_plain(Configuration, each["configuration"]),
                    since=each["since"],
                    through_change=each["through_change"],
                )
                for each in plain["configurations"]
            ),
            actions=tuple(Action(**action) for action in plain["actions"]),
            stalled_seconds=plain["stalled_seconds"],
            notes=tuple(plain["notes"]),
            link_facts=plain["link_facts"],
        )
