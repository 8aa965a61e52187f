"""The exceptions of ``firedex.planning``.

::

    PlanningError
    └── PolicyNotAvailable    a policy that this version cannot carry out
"""

from collections.abc import Collection

__all__ = ["PlanningError", "PolicyNotAvailable"]


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
