"""The exceptions of ``firedex_models``.

::

    ModelError
    └── MissingAssignment  a prediction was asked for a scenario without an assignment
"""

__all__ = ["MissingAssignment", "ModelError"]


class ModelError(Exception):
    """Base class of the exceptions of ``firedex_models``."""


class MissingAssignment(ModelError):
    """The scenario has no assignment of subscriptions to flows."""

    def __init__(self, scenario: str) -> None:
        self.scenario = scenario
        super().__init__(f"scenario {scenario!r} has no assignment; run 'firedex plan' first")
