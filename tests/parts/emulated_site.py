"""A site, and an observation of a run on it that never was: what measurements are made of."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from small_site import site

from firedex.wire import Configuration, DeliveryRecord, Flow, Scenario, from_plain, to_plain
from firedex_clients.delivery_log import write_records
from firedex_emulation.observation import Action, InForce, Observation, SentEvent, Visit
from firedex_models import predict

BEGAN = 1_000_000.0


def scenario(**changes: Any) -> Scenario:
    """Command has smoke in class 0 and heat in class 1."""
    subscriber = {
        "id": "command",
        "switch": "s1",
        "subscriptions": [
            {"filter": "smoke/#", "utility": {"kind": "log", "weight": 3.0}}
            | {"deadline_seconds": 0.5},
            {"filter": "heat/1", "utility": {"kind": "linear", "weight": 1.0}},
        ],
    }
    plain = site(subscribers=[subscriber], stamped_events=True, **changes)
    del plain["assignment"]
    return from_plain(Scenario, plain)


def in_force(
    of: Scenario, version: int, after: float, classes: Mapping[str, int], through_change: int = 0
) -> InForce:
    """A plan with each filter in a flow and class of its own, in force ``after`` the beginning."""
    flows = tuple(
        Flow(subscriber="command", flow=number, priority=priority, drop_rate=0.0, filters=(name,))
        for number, (name, priority) in enumerate(classes.items())
    )
    assigned = from_plain(
        Scenario,
        {
            **_plain(of),
            "assignment": [
                {"subscriber": "command", "filter": name, "flow": number, "priority": priority}
                for number, (name, priority) in enumerate(classes.items())
            ],
        },
    )
    return InForce(
        configuration=Configuration(
            version=version,
            broker="b1",
            created_at=datetime.fromtimestamp(BEGAN + after, UTC),
            reason="a test",
            flows=flows,
            prediction=predict(assigned).to_prediction(),
        ),
        since=BEGAN + after,
        through_change=through_change,
    )


def _plain(of: Scenario) -> dict[str, Any]:
    return {**to_plain(of), "timeline": [], "phases": []}


def observed(
    of: Scenario,
    sent: Sequence[SentEvent],
    *,
    seconds: float = 10.0,
    plans: Sequence[InForce] | None = None,
    visits: Sequence[Visit] | None = None,
    actions: Sequence[Action] = (),
) -> Observation:
    """A run of so many seconds, with the subscriber there all the time unless said otherwise."""
    everything = {"smoke/#": 0, "heat/1": 1}
    stay = Visit(asked_at=BEGAN - 2, ready_at=BEGAN - 1, left_at=BEGAN + seconds + 2)
    return Observation(
        began_at=BEGAN,
        ended_at=BEGAN + seconds,
        sent=tuple(sent),
        visits={"command": tuple(visits if visits is not None else [stay])},
        configurations=tuple(plans or [in_force(of, 1, -1.0, everything)]),
        actions=tuple(actions),
    )


def record(folder: Path, way: str, arrivals: Sequence[tuple[str, str, str, float, float]]) -> None:
    """Write what arrived: event, topic, filter, when published and how long it took."""
    write_records(
        folder / f"{way}-command.parquet",
        [
            DeliveryRecord(
                run=way,
                broker="b1",
                publication_id=event,
                topic=topic,
                publisher=None,
                subscriber="command",
                filter=name,
                flow=0,
                priority=0,
                configuration_version=1,
                wire_bytes=100,
                published_at_seconds=published,
                received_at_seconds=published + delay,
                outcome="delivered",
            )
            for event, topic, name, published, delay in arrivals
        ],
    )
