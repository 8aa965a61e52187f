"""The exceptions of ``firedex.planning``.

::

    PlanningError
    ├── LoadCannotBeMet       no drop rates of the policy are enough
    └── SolverFailed          the convex solver found no optimum
"""

__all__ = ["LoadCannotBeMet", "PlanningError", "SolverFailed"]


class PlanningError(Exception):
    """The root of what ``firedex.planning`` raises."""


class LoadCannotBeMet(PlanningError):
    """Even the strongest drop rates of a policy leave a queue above its limit."""

    def __init__(self, policy: str, queue: str, load: float, limit: float) -> None:
        self.policy, self.queue, self.load, self.limit = policy, queue, load, limit
        super().__init__(
            f"planning.drop_policy: {policy!r} cannot bring {queue!r} down to {limit:.3g} of what "
            f"it carries; what the policy never drops (class 0, QoS 1 and 2) offers {load:.3g}. "
            "Use 'flat', more classes, or fewer subscriptions at QoS 1 and 2"
        )


class SolverFailed(PlanningError):
    """CVXPY's solver gave up, or its answer cannot be trusted."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"planning.solver: Clarabel found no optimum: {reason}")
