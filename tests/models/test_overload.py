"""Predictions for a link with more offered load than capacity.

The expected values are those of ``docs/concepts/model.md``: classes with σ_k < 1 are delivered
completely, the class in which σ exceeds 1 with the fraction (1 − σ_{k−1}) / ρ_k, and lower classes
not at all.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from firedex.wire.results import ModelName
from firedex_models import predict
from tests.models.bottleneck_cases import Bottleneck, CaseSubscription, PublishedTopic

pytestmark = pytest.mark.slow

many_examples = settings(max_examples=100, deadline=None, derandomize=True)
BUFFER = 5_000
PACKET_SECONDS = 0.001

class_loads = st.lists(st.floats(0.05, 0.8), min_size=4, max_size=4).filter(
    lambda loads: all(abs(sum(loads[: k + 1]) - 1) > 0.05 for k in range(4)) and sum(loads) > 1.05
)


def _overloaded_link(loads: list[float], buffer_kind: str | None = None) -> Bottleneck:
    """Return a link with one class, topic and subscriber per load; a packet takes 1 ms."""
    topics = [
        PublishedTopic(name=f"t{k}", rate=load / PACKET_SECONDS) for k, load in enumerate(loads)
    ]
    subscriptions = [
        CaseSubscription(subscriber=f"n{k}", filter=f"t{k}", topics=(k,), priority=k)
        for k in range(len(loads))
    ]
    buffer = {"kind": buffer_kind, "packets": BUFFER} if buffer_kind else None
    speed = 100 / PACKET_SECONDS
    return Bottleneck(
        topics=topics, subscriptions=subscriptions, bytes_per_second=speed, buffer=buffer
    )


def _first_saturated_class(loads: list[float]) -> int:
    return int(np.argmax(np.cumsum(loads) > 1))


def _waits_above(loads: list[float]) -> np.ndarray:
    """Return the waits by Cobham's formula above the saturated class; the link is always busy."""
    saturated = _first_saturated_class(loads)
    residual = PACKET_SECONDS / 2
    total = np.cumsum([0.0, *loads[:saturated]])
    return np.asarray(residual / ((1 - total[:-1]) * (1 - total[1:])))


@many_examples
@given(class_loads, st.sampled_from(["fan-out", "independent"]))
def test_infinite_buffer_has_no_delay_for_saturated_and_lower_classes(
    loads: list[float], model: ModelName
) -> None:
    rows = predict(_overloaded_link(loads).scenario(), model=model).to_prediction().subscriptions
    saturated = _first_saturated_class(loads)
    for row in rows[:saturated]:
        assert row.method == "queueing"
        assert row.delay_mean_seconds is not None
    assert rows[saturated].method == "unstable"
    assert rows[saturated].reason is not None
    for row in rows[saturated:]:
        assert row.delay_mean_seconds is None
        assert row.delay_p95_seconds is None
        assert row.method in ("unstable", "nothing-delivered")
    delay = np.array([row.delay_mean_seconds for row in rows[:saturated]], dtype=float)
    np.testing.assert_allclose(delay, _waits_above(loads) + PACKET_SECONDS, rtol=1e-6)


@many_examples
@given(class_loads)
def test_classes_below_saturated_class_are_unstable(loads: list[float]) -> None:
    """Events behind an infinite queue are not lost but never arrive: the method is "unstable"."""
    rows = predict(_overloaded_link(loads).scenario()).to_prediction().subscriptions
    assert {row.method for row in rows[_first_saturated_class(loads) :]} == {"unstable"}


@many_examples
@given(class_loads, st.sampled_from(["shared-push-out", "per-class-head-drop"]))
def test_success_rates_with_finite_buffer_equal_fluid_model(loads: list[float], kind: str) -> None:
    rows = predict(_overloaded_link(loads, kind).scenario()).to_prediction().subscriptions
    saturated = _first_saturated_class(loads)
    spare = 1 - sum(loads[:saturated])
    expected = [1.0] * saturated + [spare / loads[saturated]] + [0.0] * (3 - saturated)
    np.testing.assert_allclose([row.success_rate for row in rows], expected, atol=1e-9)
    assert all(row.method == "queueing" for row in rows[:saturated])
    assert rows[saturated].method == "fluid"
    assert all(row.method == "nothing-delivered" for row in rows[saturated + 1 :])


@many_examples
@given(class_loads)
def test_delay_with_shared_buffer_depends_on_throughput_of_saturated_class(
    loads: list[float],
) -> None:
    saturated = _first_saturated_class(loads)
    rates = np.array(loads) / PACKET_SECONDS
    waiting_above = float((rates[:saturated] * _waits_above(loads)).sum())
    throughput = (1 - sum(loads[:saturated])) / PACKET_SECONDS
    assume(waiting_above < BUFFER / 2)
    table = predict(_overloaded_link(loads, "shared-push-out").scenario())
    expected = (BUFFER - waiting_above) / throughput + PACKET_SECONDS
    assert table.delay_mean_seconds[saturated] == pytest.approx(expected, rel=1e-6)


@many_examples
@given(class_loads)
def test_delay_with_head_drop_buffer_is_its_fill_time(
    loads: list[float],
) -> None:
    saturated = _first_saturated_class(loads)
    table = predict(_overloaded_link(loads, "per-class-head-drop").scenario())
    expected = BUFFER / (loads[saturated] / PACKET_SECONDS) + PACKET_SECONDS
    assert table.delay_mean_seconds[saturated] == pytest.approx(expected, rel=1e-6)
