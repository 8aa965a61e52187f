"""What the model of independent arrivals says of the same plans, to compare. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firedex.wire import Assignment, Scenario
from firedex.wire.timeline import BandwidthChange, Surge
from firedex_emulation.observation import InForce
from firedex_models import ModelError, predict

__all__ = ["independent_predictions"]


def independent_predictions(
    scenario: Scenario, configurations: Sequence[InForce]
) -> list[Mapping[tuple[str, str], float | None]]:
    """Mean delays by subscriber and filter under each configuration; empty where it cannot say.

    That is where bandwidths have changed, or measured rates count: it knows those declared.
    """
    changed = any(isinstance(event, BandwidthChange | Surge) for event in scenario.timeline)
    return [{} if changed else _of(scenario, each) for each in configurations]


def _of(scenario: Scenario, in_force: InForce) -> Mapping[tuple[str, str], float | None]:
    planned = {
        (flow.subscriber, name): flow
        for flow in in_force.configuration.flows
        for name in flow.filters
    }
    there = tuple(
        subscriber
        for subscriber in scenario.subscribers
        if all((subscriber.id, each.filter) in planned for each in subscriber.subscriptions)
    )
    assignment = tuple(
        Assignment(
            subscriber=subscriber.id,
            filter=each.filter,
            flow=flow.flow,
            priority=flow.priority,
            drop_rate=flow.drop_rate,
        )
        for subscriber in there
        for each in subscriber.subscriptions
        for flow in [planned[subscriber.id, each.filter]]
    )
    if not assignment:
        return {}
    evaluated = replace(scenario, subscribers=there, assignment=assignment, timeline=(), phases=())
    try:
        rows = predict(evaluated, model="independent").rows()
    except ModelError:
        return {}
    return {(row.subscriber, row.filter): row.delay_mean_seconds for row in rows}
