"""What a run leaves beside its delivery records: who sent, who was there, what changed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from firedex.wire import Configuration, from_plain, to_plain

__all__ = ["Action", "InForce", "Observation", "SentEvent", "Visit"]

SentEvent = tuple[str, str, float]
"""Event id, topic, and when it was published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A subscriber's stay: when it asked to come, was in, left; when which plan was in force there.

    ``ready_at`` is None if it never came in.
    """

    asked_at: float
    left_at: float
    ready_at: float | None = None
    signed_off_at: float | None = None
    settled: tuple[tuple[int, float], ...] = ()

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> "Visit":
        """From what a subscriber's program wrote."""
        settled = tuple((int(version), float(at)) for version, at in data.get("settled", ()))
        return cls(**{**data, "settled": settled})


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something of the timeline that was done: from when to when, as which change.

    ``phase``: the one that began; ``is_failure``: something was taken away.
    """

    what: str
    kind: str
    asked_at: float
    done_at: float
    change: int | None = None
    phase: str | None = None
    is_failure: bool = False
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A configuration, and since when it was in force."""

    configuration: Configuration
    since: float
    through_change: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One way's run. Times are seconds since the epoch, all by one clock."""

    began_at: float
    ended_at: float
    sent: tuple[SentEvent, ...]
    visits: Mapping[str, tuple[Visit, ...]]
    configurations: tuple[InForce, ...]
    actions: tuple[Action, ...] = ()
    stalled_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    link_facts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def with_notes(self, notes: tuple[str, ...]) -> "Observation":
        """With more to say; nothing twice."""
        return replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))

    def to_json(self) -> str:
        """For a file."""
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
        """What ``to_json`` gave."""
        plain = json.loads(text)
        return cls(
            began_at=plain["began_at"],
            ended_at=plain["ended_at"],
            sent=tuple((str(event), str(topic), at) for event, topic, at in plain["sent"]),
            visits={
                name: tuple(Visit.from_plain(visit) for visit in visits)
                for name, visits in plain["visits"].items()
            },
            configurations=tuple(
                InForce(
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
