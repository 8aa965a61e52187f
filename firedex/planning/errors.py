"""The exceptions of ``firedex.planning``.

::

    PlanningError
    ├── PolicyNotAvailable    a policy that this version cannot carry out
    └── LoadCannotBeMet       no drop rates of the policy are enough
"""

from collections.abc import Collection

__all__ = ["LoadCannotBeMet", "PlanningError", "PolicyNotAvailable"]


class PlanningError(Exception):
    """The root of what ``firedex.planning`` raises."""


class PolicyNotAvailable(PlanningError):
    """The scenario asks for a policy that this version does not have."""

    def __init__(self, field: str, policy: str, available: Collection[str]) -> None:
        self.field, self.policy = field, policy
        super().__init__(
            f"planning.{field}: {policy!r} is not in this version; use one of "
            + ", ".join(sorted(available))
        )


class LoadCannotBeMet(PlanningError):
    """Even the strongest drop rates of a policy leave a queue above its limit."""

    def __init__(self, policy: str, queue: str, load: float, limit: float) -> None:
        self.policy, self.queue, self.load, self.limit = policy, queue, load, limit
        super().__init__(
            f"planning.drop_policy: {policy!r} cannot bring {queue!r} down to {limit:.3g} of what "
            f"it carries; what the policy never drops (class 0, QoS 1 and 2) offers {load:.3g}. "
            "Use 'flat', more classes, or fewer subscriptions at QoS 1 and 2"
        )
