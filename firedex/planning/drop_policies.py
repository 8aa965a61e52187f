"""Drop rates that bring every switch's load down to 1 − ρ̃ (paper §4.3, Eqs. 12-15).

Each policy is a family of drop rates with one parameter; the least parameter that is enough is
found by bisection. Loads are the model's own, so what fits here fits there.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from firedex.planning.errors import LoadCannotBeMet
from firedex.wire import Assignment, Scenario
from firedex_models import predict

__all__ = ["DROP_POLICIES", "assign_drop_rates"]

STEPS = 60
ROUNDING = 1e-12

Rule = Callable[[int, float], float]
"""The drop rate of a class at a strength in [0, 1], rising with the strength."""


def _exponential(priority: int, strength: float) -> float:
    # strength is 1 − 1/β: from β = 1 (nothing dropped) to β → ∞ (only class 0 passes)
    return 1.0 - float((1.0 - strength) ** priority)


DROP_POLICIES: dict[str, Rule] = {
    "none": lambda _priority, _strength: 0.0,
    "flat": lambda _priority, strength: strength,
    "linear": lambda priority, strength: min(strength * priority, 1.0),
    "exponential": _exponential,
}


def assign_drop_rates(
    scenario: Scenario, assignment: Sequence[Assignment], policy: str
) -> list[Assignment]:
    """Give every flow the least drop rate of its policy that keeps all switches below 1 − ρ̃.

    QoS 1 and 2 are never dropped: they keep a drop rate of 0.
    """
    rule = DROP_POLICIES[policy]
    kept_flows = _acknowledged_flows(scenario, assignment)

    def at(strength: float) -> list[Assignment]:
        return [
            entry
            if (entry.subscriber, entry.flow) in kept_flows
            else replace(entry, drop_rate=rule(entry.priority, strength))
            for entry in assignment
        ]

    limit = 1.0 - scenario.planning.rho_tolerance

    def busiest(candidate: list[Assignment]) -> tuple[float, str]:
        queues = predict(scenario, assignment=candidate).queues
        return max(
            ((q.utilization, q.id) for q in queues if q.kind == "switch-out"), default=(0.0, "")
        )

    def fits(candidate: list[Assignment]) -> bool:
        return busiest(candidate)[0] <= limit + ROUNDING

    if policy == "none" or fits(at(0.0)):
        return at(0.0)
    least, queue = busiest(at(1.0))
    if least > limit + ROUNDING:
        raise LoadCannotBeMet(policy, queue, least, limit)
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(at(middle)) else (middle, high)
    return at(high)


def _acknowledged_flows(
    scenario: Scenario, assignment: Sequence[Assignment]
) -> set[tuple[str, int]]:
    acknowledged = {
        (subscriber.id, subscription.filter)
        for subscriber in scenario.subscribers
        for subscription in subscriber.subscriptions
        if subscription.qos > 0
    }
    return {
        (entry.subscriber, entry.flow)
        for entry in assignment
        if (entry.subscriber, entry.filter) in acknowledged
    }
