"""A scenario and made-up observations of runs, for tests of measurements."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from firedex.wire import Configuration, DeliveryRecord, Flow, Scenario, from_plain, to_plain
from firedex_clients.delivery_log import write_records
from firedex_emulation.measurement.observation import (
    Action,
    ActiveConfiguration,
    Observation,
    SentEvent,
    SubscriberSession,
)
from firedex_models import predict
from tests.support.small_site import site

BEGAN = 1_000_000.0


def scenario(**changes: Any) -> Scenario:
    """Return a scenario in which ``command`` has smoke in class 0 and heat in class 1."""
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


def active_configuration(
    site_scenario: Scenario,
    version: int,
    after: float,
    classes: Mapping[str, int],
    through_change: int = 0,
) -> ActiveConfiguration:
    """Return a configuration with one flow for each filter, active from ``after`` seconds on."""
    flows = tuple(
        Flow(subscriber="command", flow=number, priority=priority, drop_rate=0.0, filters=(name,))
        for number, (name, priority) in enumerate(classes.items())
    )
    scenario_with_assignment = from_plain(
        Scenario,
        {
            **_plain(site_scenario),
            "assignment": [
                {"subscriber": "command", "filter": name, "flow": number, "priority": priority}
                for number, (name, priority) in enumerate(classes.items())
            ],
        },
    )
    return ActiveConfiguration(
        configuration=Configuration(
            version=version,
            broker="b1",
            created_at=datetime.fromtimestamp(BEGAN + after, UTC),
            reason="a test",
            flows=flows,
            prediction=predict(scenario_with_assignment).to_prediction(),
        ),
        since=BEGAN + after,
        through_change=through_change,
    )


def _plain(site_scenario: Scenario) -> dict[str, Any]:
    return {**to_plain(site_scenario), "timeline": [], "phases": []}


def make_observation(
    site_scenario: Scenario,
    sent: Sequence[SentEvent],
    *,
    seconds: float = 10.0,
    plans: Sequence[ActiveConfiguration] | None = None,
    sessions: Sequence[SubscriberSession] | None = None,
    actions: Sequence[Action] = (),
) -> Observation:
    """Return the observation of a run; by default the subscriber is connected all the time."""
    classes = {"smoke/#": 0, "heat/1": 1}
    session = SubscriberSession(asked_at=BEGAN - 2, ready_at=BEGAN - 1, left_at=BEGAN + seconds + 2)
    return Observation(
        began_at=BEGAN,
        ended_at=BEGAN + seconds,
        sent=tuple(sent),
        sessions={"command": tuple(sessions if sessions is not None else [session])},
        configurations=tuple(plans or [active_configuration(site_scenario, 1, -1.0, classes)]),
        actions=tuple(actions),
    )


def write_deliveries(
    folder: Path, mode: str, arrivals: Sequence[tuple[str, str, str, float, float]]
) -> None:
    """Write delivery records from (event, topic, filter, time of publication, delay)."""
    write_records(
        folder / f"{mode}-command.parquet",
        [
            DeliveryRecord(
                run=mode,
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
