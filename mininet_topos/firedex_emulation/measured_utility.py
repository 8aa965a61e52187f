"""What the deliveries were worth: by success, and by what came in time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firedex.service.incident_profiles import under_profile
from firedex.wire import Scenario, Subscription
from firedex.wire.incident import UtilityProfile
from firedex_emulation.delivery_ledger import Ledger
from firedex_emulation.observation import Observation
from firedex_models import utility_of

__all__ = ["MeasuredUtility", "measured_utility"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUtility:
    """Shares of the greatest utility: of what was delivered, of what came within its deadline.

    Predictions are of the last configuration in force; None without one.
    """

    achieved: float
    timely: float
    achieved_predicted: float | None
    timely_predicted: float | None


def measured_utility(
    scenario: Scenario, observation: Observation, owed: Sequence[Ledger]
) -> MeasuredUtility:
    """Utilities are those of the phase in which an event was published; phases weigh by length."""
    achieved = timely = greatest = 0.0
    for began, ended, profile in _phases(scenario, observation):
        for ledger in owed:
            inside = (ledger.published >= began) & (ledger.published < ended)
            if not inside.any():
                continue
            utility = _in_phase(ledger, profile).utility
            weight = ended - began
            achieved += weight * utility_of(utility, float(ledger.delivered[inside].mean()))
            timely += weight * utility_of(utility, float(np.mean(ledger.timely[inside])))
            greatest += weight * utility_of(utility, 1.0)
    last = observation.configurations[-1].configuration if observation.configurations else None
    predicted = last.prediction if last else None
    return MeasuredUtility(
        achieved=achieved / greatest if greatest else 0.0,
        timely=timely / greatest if greatest else 0.0,
        achieved_predicted=predicted.achieved_utility_rate if predicted else None,
        timely_predicted=(
            predicted.timely_utility / predicted.maximum_utility
            if predicted and predicted.maximum_utility
            else None
        ),
    )


def _phases(
    scenario: Scenario, observation: Observation
) -> list[tuple[float, float, UtilityProfile]]:
    """From, to, and the profile that counts meanwhile."""
    rules = {phase.phase: UtilityProfile(rules=phase.rules) for phase in scenario.phases}
    first = next(iter(rules.values()), UtilityProfile())
    marks = [(observation.began_at, first)]
    marks += [
        (action.asked_at, rules[action.phase])
        for action in observation.actions
        if action.phase is not None and action.trouble is None
    ]
    ends = [at for at, _ in marks[1:]] + [observation.ended_at + 1.0]
    return [(at, end, profile) for (at, profile), end in zip(marks, ends, strict=True)]


def _in_phase(ledger: Ledger, profile: UtilityProfile) -> Subscription:
    under = under_profile(ledger.subscriber, profile)
    return next(s for s in under.subscriptions if s.filter == ledger.subscription.filter)
