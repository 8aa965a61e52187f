"""More is offered than the link carries: no delay, or the fluid picture of a full buffer.

The formulas are those of the model's description: classes with σ_k < 1 are delivered whole, the
one where σ crosses 1 in the fraction (1 − σ_{k−1}) / ρ_k, and the lower ones not at all.
"""

import numpy as np
import pytest
from bottleneck_cases import Bottleneck, PublishedTopic, Wanted
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from firedex_models import predict

often = settings(max_examples=100, deadline=None, derandomize=True)
BUFFER = 5_000
PACKET_SECONDS = 0.001

class_loads = st.lists(st.floats(0.05, 0.8), min_size=4, max_size=4).filter(
    lambda loads: all(abs(sum(loads[: k + 1]) - 1) > 0.05 for k in range(4)) and sum(loads) > 1.05
)


def _overloaded(loads: list[float], buffer_kind: str | None = None) -> Bottleneck:
    """One class for each load, a topic and a subscriber each; packets take a millisecond."""
    topics = [
        PublishedTopic(name=f"t{k}", rate=load / PACKET_SECONDS) for k, load in enumerate(loads)
    ]
    wanted = [
        Wanted(subscriber=f"n{k}", filter=f"t{k}", topics=(k,), priority=k)
        for k in range(len(loads))
    ]
    buffer = {"kind": buffer_kind, "packets": BUFFER} if buffer_kind else None
    speed = 100 / PACKET_SECONDS
    return Bottleneck(topics=topics, wanted=wanted, bytes_per_second=speed, buffer=buffer)


def _crossing(loads: list[float]) -> int:
    return int(np.argmax(np.cumsum(loads) > 1))


def _waits_above(loads: list[float]) -> np.ndarray:
    """Cobham for the classes above the crossing one; the link never idles."""
    crossing = _crossing(loads)
    residual = PACKET_SECONDS / 2
    total = np.cumsum([0.0, *loads[:crossing]])
    return residual / ((1 - total[:-1]) * (1 - total[1:]))


@often
@given(class_loads, st.sampled_from(["fan-out", "independent"]))
def test_an_endless_buffer_has_no_delay_from_the_saturated_class_down(loads, model):
    rows = predict(_overloaded(loads).scenario(), model=model).to_prediction().subscriptions
    crossing = _crossing(loads)
    for row in rows[:crossing]:
        assert row.method == "queueing"
        assert row.delay_mean_seconds is not None
    assert rows[crossing].method == "unstable"
    assert rows[crossing].reason is not None
    for row in rows[crossing:]:
        assert row.delay_mean_seconds is None
        assert row.delay_p95_seconds is None
        assert row.method in ("unstable", "nothing-delivered")
    delay = [row.delay_mean_seconds for row in rows[:crossing]]
    np.testing.assert_allclose(delay, _waits_above(loads) + PACKET_SECONDS, rtol=1e-6)


@often
@given(class_loads)
def test_classes_below_the_saturated_one_are_unstable_too(loads):
    """What waits behind an endless queue is not lost: it never comes, and its method says so."""
    rows = predict(_overloaded(loads).scenario()).to_prediction().subscriptions
    assert {row.method for row in rows[_crossing(loads) :]} == {"unstable"}


@often
@given(class_loads, st.sampled_from(["shared-push-out", "per-class-head-drop"]))
def test_a_finite_buffer_delivers_the_fluid_fractions(loads, kind):
    rows = predict(_overloaded(loads, kind).scenario()).to_prediction().subscriptions
    crossing = _crossing(loads)
    spare = 1 - sum(loads[:crossing])
    expected = [1.0] * crossing + [spare / loads[crossing]] + [0.0] * (3 - crossing)
    np.testing.assert_allclose([row.success_rate for row in rows], expected, atol=1e-9)
    assert all(row.method == "queueing" for row in rows[:crossing])
    assert rows[crossing].method == "fluid"
    assert all(row.method == "nothing-delivered" for row in rows[crossing + 1 :])


@often
@given(class_loads)
def test_a_shared_buffer_passes_at_the_saturated_class_s_throughput(loads):
    crossing = _crossing(loads)
    rates = np.array(loads) / PACKET_SECONDS
    waiting_above = float((rates[:crossing] * _waits_above(loads)).sum())
    throughput = (1 - sum(loads[:crossing])) / PACKET_SECONDS
    assume(waiting_above < BUFFER / 2)
    table = predict(_overloaded(loads, "shared-push-out").scenario())
    expected = (BUFFER - waiting_above) / throughput + PACKET_SECONDS
    assert table.delay_mean_seconds[crossing] == pytest.approx(expected, rel=1e-6)


@often
@given(class_loads)
def test_a_leaf_that_drops_its_oldest_is_as_old_as_its_arrivals_fill_it(loads):
    crossing = _crossing(loads)
    table = predict(_overloaded(loads, "per-class-head-drop").scenario())
    expected = BUFFER / (loads[crossing] / PACKET_SECONDS) + PACKET_SECONDS
    assert table.delay_mean_seconds[crossing] == pytest.approx(expected, rel=1e-6)
