"""Properties of the queueing model that must hold for any traffic."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from firedex.wire.results import ModelName
from firedex_models import predict
from firedex_models.queue_traffic import QueueTraffic
from firedex_models.queueing import priority_waits
from tests.models.bottleneck_cases import Bottleneck, CaseSubscription, PublishedTopic
from tests.models.generated_traffic import CLASSES, delays, make_independent, traffic, waits

pytestmark = pytest.mark.slow

Model = Callable[[QueueTraffic], QueueTraffic]
Floats = NDArray[np.float64]
ROUNDING = 1e-9

many_examples = settings(max_examples=100, deadline=None, derandomize=True)
either_model: st.SearchStrategy[Model] = st.sampled_from(
    [lambda streams: streams, make_independent]
)


@many_examples
@given(traffic(sizes=(1.0, 1.0), random_sizes=False), either_model, st.permutations(range(CLASSES)))
def test_waiting_work_is_conserved_when_classes_are_permuted(
    streams: QueueTraffic, model: Model, order: list[int]
) -> None:
    streams = model(streams)
    moved = replace(streams, priority=np.array(order)[streams.priority])
    load = streams.packet_rate * streams.service_seconds
    assert (load * waits(moved)).sum() == pytest.approx((load * waits(streams)).sum(), rel=1e-8)


@many_examples
@given(traffic(), either_model, st.permutations(range(CLASSES)))
def test_waiting_work_is_conserved_with_mixed_size_distributions(
    streams: QueueTraffic, model: Model, order: list[int]
) -> None:
    """Waiting work is Σ λ E[S W]; S and W are correlated within a publication."""
    streams = model(streams)
    moved = replace(streams, priority=np.array(order)[streams.priority])
    assert _waiting_work(moved) == pytest.approx(_waiting_work(streams), rel=1e-8)


def _waiting_work(streams: QueueTraffic) -> float:
    result = priority_waits(streams, np.ones((1, CLASSES)))
    work = streams.service_seconds * result.mean + result.covariance
    return float((streams.packet_rate * work).sum())


@many_examples
@given(traffic(max_load=0.9), either_model, st.data())
def test_delays_do_not_decrease_when_a_publication_rate_increases(
    streams: QueueTraffic, model: Model, data: st.DataObject
) -> None:
    streams = model(streams)
    chosen = data.draw(st.sampled_from(sorted(set(streams.topic))))
    factor = data.draw(st.floats(1.0, 1.1))
    busier = replace(streams, rate=np.where(streams.topic == chosen, factor, 1.0) * streams.rate)
    assert (delays(busier).mean >= delays(streams).mean * (1 - ROUNDING)).all()


@many_examples
@given(traffic(max_load=0.9), either_model, st.data())
def test_delays_do_not_decrease_when_a_drop_rate_decreases(
    streams: QueueTraffic, model: Model, data: st.DataObject
) -> None:
    streams = model(streams)
    chosen = data.draw(st.integers(0, len(streams.rate) - 1))
    survival = streams.survival.copy()
    survival[chosen] = min(1.0, survival[chosen] * data.draw(st.floats(1.0, 1.1)))
    busier = replace(streams, survival=survival)
    assert (delays(busier).mean >= delays(streams).mean * (1 - ROUNDING)).all()


@many_examples
@given(traffic(), either_model, st.data())
def test_wait_of_a_stream_does_not_decrease_in_a_lower_class(
    streams: QueueTraffic, model: Model, data: st.DataObject
) -> None:
    streams = model(streams)
    chosen = data.draw(st.integers(0, len(streams.rate) - 1))
    waits_by_class = []
    for priority in range(CLASSES):
        classes = streams.priority.copy()
        classes[chosen] = priority
        waits_by_class.append(waits(replace(streams, priority=classes))[chosen])
    assert (np.diff(waits_by_class) >= -ROUNDING * max(waits_by_class)).all()


@many_examples
@given(traffic(max_packets=1), either_model)
def test_waits_equal_cobham_formula_if_publications_have_one_packet(
    streams: QueueTraffic, model: Model
) -> None:
    np.testing.assert_allclose(waits(model(streams)), _cobham(streams), rtol=1e-9)


@many_examples
@given(traffic())
def test_waits_equal_cobham_formula_if_arrivals_are_independent(streams: QueueTraffic) -> None:
    np.testing.assert_allclose(waits(make_independent(streams)), _cobham(streams), rtol=1e-9)


def _cobham(streams: QueueTraffic) -> Floats:
    """W_k = R / ((1 − σ_{k−1})(1 − σ_k)), R = ½ Σ λ E[S²] (Cobham 1954)."""
    packets = streams.rate * streams.survival
    load = packets * streams.service_seconds
    second_moment = (1 + streams.size_variability) * streams.service_seconds**2
    residual = (packets * second_moment).sum() / 2
    wait = []
    for k in streams.priority:
        above, up_to = load[streams.priority < k].sum(), load[streams.priority <= k].sum()
        wait.append(residual / ((1 - above) * (1 - up_to)))
    return np.array(wait)


@many_examples
@given(traffic(), either_model, st.data())
def test_stream_with_drop_rate_1_does_not_affect_other_streams(
    streams: QueueTraffic, model: Model, data: st.DataObject
) -> None:
    streams = model(streams)
    chosen = data.draw(st.integers(0, len(streams.rate) - 1))
    others = np.arange(len(streams.rate)) != chosen
    survival = np.where(others, streams.survival, 0.0)
    fields = ("queue", "priority", "publication", "topic", "rate", "survival", "service_seconds")
    absent = replace(
        streams, **{name: getattr(streams, name)[others] for name in (*fields, "size_variability")}
    )
    without_events = delays(replace(streams, survival=survival))
    np.testing.assert_allclose(without_events.mean[others], delays(absent).mean, rtol=1e-9)
    np.testing.assert_allclose(without_events.variance[others], delays(absent).variance, rtol=1e-7)


@many_examples
@given(traffic(), either_model, st.data(), st.sampled_from([0.0, 1.0]))
def test_delays_are_continuous_at_drop_rates_0_and_1(
    streams: QueueTraffic, model: Model, data: st.DataObject, limit: float
) -> None:
    streams = model(streams)
    chosen = data.draw(st.integers(0, len(streams.rate) - 1))
    # Reduce all sizes, so that a drop rate of 0 does not overload the link.
    reduced = replace(streams, service_seconds=streams.service_seconds / 20)
    at_limit, near_limit = reduced.survival.copy(), reduced.survival.copy()
    at_limit[chosen], near_limit[chosen] = limit, abs(limit - 1e-9)
    exact, close = (
        delays(replace(reduced, survival=at_limit)),
        delays(replace(reduced, survival=near_limit)),
    )
    np.testing.assert_allclose(close.mean, exact.mean, rtol=1e-6)
    tolerance = 1e-6 * float(reduced.service_seconds.max()) ** 2
    np.testing.assert_allclose(close.variance, exact.variance, rtol=1e-5, atol=tolerance)


@many_examples
@given(traffic(classes=1))
def test_single_class_equals_pollaczek_khinchine_formula_with_batches(
    streams: QueueTraffic,
) -> None:
    load = (streams.rate * streams.survival * streams.service_seconds).sum()
    second = sum(_batch_second_moment(streams, p) for p in set(streams.publication))
    for row, wait in enumerate(waits(streams)):
        others = (streams.publication == streams.publication[row]).nonzero()[0]
        others = others[others != row]
        ahead = (streams.survival[others] * streams.service_seconds[others]).sum() / 2
        assert wait == pytest.approx(second / (2 * (1 - load)) + ahead, rel=1e-9)


def _batch_second_moment(streams: QueueTraffic, publication: int) -> float:
    """Return λ E[X²] by enumerating all combinations of dropped packets."""
    rows = (streams.publication == publication).nonzero()[0]
    moment = 0.0
    for outcome in product((0, 1), repeat=len(rows)):
        survives = np.array(outcome)
        probability = np.where(survives, streams.survival[rows], 1 - streams.survival[rows]).prod()
        moment += probability * (survives * streams.service_seconds[rows]).sum() ** 2
    first = rows[0]
    return float(streams.rate[first] * (1 + streams.size_variability[first]) * moment)


def _one_topic(rate: float, *, exponential: bool) -> Bottleneck:
    topic = PublishedTopic(name="t", rate=rate, exponential=exponential)
    subscription = CaseSubscription(subscriber="n", filter="t", topics=(0,), priority=0)
    return Bottleneck(topics=[topic], subscriptions=[subscription], bytes_per_second=10_000.0)


@many_examples
@given(st.floats(0.5, 99.0), st.sampled_from(["fan-out", "independent"]))
def test_single_exponential_stream_equals_mm1_queue(rate: float, model: ModelName) -> None:
    table = predict(_one_topic(rate, exponential=True).scenario(), model=model)
    mean = 1 / (100.0 - rate)
    assert table.delay_mean_seconds[0] == pytest.approx(mean, rel=1e-6)
    assert table.delay_variance[0] == pytest.approx(mean**2, rel=1e-6)
    assert table.delay_p95_seconds[0] == pytest.approx(-np.log(0.05) * mean, rel=1e-6)


@many_examples
@given(st.lists(st.floats(0.5, 20.0), min_size=1, max_size=5), st.floats(0.05, 0.95))
def test_paper_equation_4_is_exact_for_equal_exponential_sizes(
    rates: list[float], load: float
) -> None:
    topics = [
        PublishedTopic(name=f"t{v}", rate=rate, exponential=True) for v, rate in enumerate(rates)
    ]
    subscriptions = [
        CaseSubscription(subscriber="n", filter=topic.name, topics=(v,), priority=0)
        for v, topic in enumerate(topics)
    ]
    scenario = Bottleneck(topics=topics, subscriptions=subscriptions).at_load(1e-6).scenario()
    uplink, downlink = scenario.network.switches
    slow_uplink = replace(uplink, bandwidth_bits_per_second=sum(rates) * 800 / load)
    network = replace(scenario.network, switches=(slow_uplink, downlink))
    scenario = replace(scenario, network=network)
    exact, paper = predict(scenario, fifo="exact"), predict(scenario, fifo="paper")
    np.testing.assert_allclose(paper.delay_mean_seconds, exact.delay_mean_seconds, rtol=1e-9)


equal_sizes = traffic(max_load=0.9, sizes=(1.0, 1.0), random_sizes=False)
bursts_in_packets = st.floats(1.0, 30.0)


@many_examples
@given(equal_sizes, either_model, bursts_in_packets)
def test_burst_does_not_increase_delays_of_equal_packets(
    streams: QueueTraffic, model: Model, packets: float
) -> None:
    streams = model(streams)
    burst = packets * float(streams.service_seconds[0])
    shaped = delays(streams, burst_seconds=burst).mean
    assert (shaped <= delays(streams).mean * (1 + ROUNDING)).all()


@many_examples
@given(equal_sizes, either_model)
def test_burst_of_one_packet_does_not_change_waits_of_equal_packets(
    streams: QueueTraffic, model: Model
) -> None:
    """The bucket covers only the packet itself: it leaves at the start of its transmission."""
    streams = model(streams)
    one_packet = float(streams.service_seconds[0])
    np.testing.assert_allclose(waits(streams, burst_seconds=one_packet), waits(streams), rtol=1e-6)


@many_examples
@given(traffic(max_load=0.9), either_model, bursts_in_packets)
def test_burst_does_not_increase_delays_of_packets_of_any_size(
    streams: QueueTraffic, model: Model, packets: float
) -> None:
    streams = model(streams)
    burst = packets * float(streams.service_seconds.max())
    shaped = delays(streams, burst_seconds=burst).mean
    assert (shaped <= delays(streams).mean * (1 + ROUNDING)).all()
