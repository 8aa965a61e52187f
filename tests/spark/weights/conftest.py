"""Generated feedback with 200 ratings a topic, and the worths learnt from it."""

import pytest

from firedex_spark.weights.generated import GeneratedFeedback, draw_feedback
from firedex_spark.weights.role_fit import LearntWorth
from tests.spark.feedback_fits import ACCEPTANCE_TRUTH, fit_all_worths


@pytest.fixture(scope="session")
def feedback_and_worths() -> tuple[GeneratedFeedback, list[LearntWorth]]:
    feedback = draw_feedback(ACCEPTANCE_TRUTH)
    return feedback, fit_all_worths(feedback)
