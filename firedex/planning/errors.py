"""The exceptions of ``firedex.planning``.

::

    PlanningError
    ├── LoadLimitNotReachable  no drop rates of the policy are enough
    └── SolverFailed          the convex solver found no optimum
"""

__all__ = ["LoadLimitNotReachable", "PlanningError", "SolverFailed"]


class PlanningError(Exception):
    """Base class of the exceptions of ``firedex.planning``."""


class LoadLimitNotReachable(PlanningError):
    """Even the highest drop rates of a policy leave the load of a queue above its limit."""

    def __init__(self, policy: str, queue: str, load: float, limit: float) -> None:
        self.policy, self.queue, self.load, self.limit = policy, queue, load, limit
        super().__init__(
            f"planning.drop_policy: {policy!r} cannot reduce the load of {queue!r} to {limit:.3g}; "
            f"traffic that the policy never drops (class 0, QoS 1 and 2) has a load of {load:.3g}. "
            "Use 'flat', more classes, or fewer subscriptions with QoS 1 and 2"
        )


class SolverFailed(PlanningError):
    """The solver of CVXPY failed, or its solution is not accurate enough."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"planning.solver: Clarabel found no optimum: {reason}")
