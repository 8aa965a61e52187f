"""The exceptions of ``firedex_models``.

::

    ModelError
    └── NotAssigned    a prediction was asked for a scenario without an assignment
"""

__all__ = ["ModelError", "NotAssigned"]


class ModelError(Exception):
    """The root of what ``firedex_models`` raises."""


class NotAssigned(ModelError):
    """The scenario says what is wanted but not where it goes."""

    def __init__(self, scenario: str) -> None:
        self.scenario = scenario
        super().__init__(f"scenario {scenario!r} has no assignment: plan one first")
