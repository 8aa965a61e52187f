"""What must hold of the queueing model whatever the traffic."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from bottleneck_cases import Bottleneck, PublishedTopic, Wanted
from generated_traffic import CLASSES, delays, independent, traffic, waits
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from firedex_models import predict
from firedex_models.priority_queue import priority_waits
from firedex_models.queue_traffic import QueueTraffic

Floats = NDArray[np.float64]
ROUNDING = 1e-9

often = settings(max_examples=100, deadline=None, derandomize=True)
either_model = st.sampled_from([lambda streams: streams, independent])


@often
@given(traffic(sizes=(1.0, 1.0), random_sizes=False), either_model, st.permutations(range(CLASSES)))
def test_work_is_conserved_when_classes_change_places(streams, model, order):
    streams = model(streams)
    moved = replace(streams, priority=np.array(order)[streams.priority])
    load = streams.packet_rate * streams.service_seconds
    assert (load * waits(moved)).sum() == pytest.approx((load * waits(streams)).sum(), rel=1e-8)


@often
@given(traffic(), either_model, st.permutations(range(CLASSES)))
def test_queued_work_is_conserved_with_sizes_of_all_kinds(streams, model, order):
    """Work waiting is Σ λ E[S W]; S and W go together where mates share their size."""
    streams = model(streams)
    moved = replace(streams, priority=np.array(order)[streams.priority])
    assert _work_waiting(moved) == pytest.approx(_work_waiting(streams), rel=1e-8)


def _work_waiting(streams: QueueTraffic) -> float:
    found = priority_waits(streams, np.ones((1, CLASSES)))
    both = streams.service_seconds * found.mean + found.covariance
    return float((streams.packet_rate * both).sum())


@often
@given(traffic(most_load=0.9), either_model, st.data())
def test_no_delay_falls_when_a_topic_is_published_more_often(streams, model, data):
    streams = model(streams)
    chosen = data.draw(st.sampled_from(sorted(set(streams.topic))))
    more = data.draw(st.floats(1.0, 1.1))
    busier = replace(streams, rate=np.where(streams.topic == chosen, more, 1.0) * streams.rate)
    assert (delays(busier).mean >= delays(streams).mean * (1 - ROUNDING)).all()


@often
@given(traffic(most_load=0.9), either_model, st.data())
def test_no_delay_falls_when_fewer_events_are_dropped(streams, model, data):
    streams = model(streams)
    chosen = data.draw(st.integers(0, len(streams.rate) - 1))
    survival = streams.survival.copy()
    survival[chosen] = min(1.0, survival[chosen] * data.draw(st.floats(1.0, 1.1)))
    busier = replace(streams, survival=survival)
    assert (delays(busier).mean >= delays(streams).mean * (1 - ROUNDING)).all()


@often
@given(traffic(), either_model, st.data())
def test_the_same_stream_never_waits_less_in_a_lower_class(streams, model, data):
    streams = model(streams)
    chosen = data.draw(st.integers(0, len(streams.rate) - 1))
    found = []
    for priority in range(CLASSES):
        classes = streams.priority.copy()
        classes[chosen] = priority
        found.append(waits(replace(streams, priority=classes))[chosen])
    assert (np.diff(found) >= -ROUNDING * max(found)).all()


@often
@given(traffic(most_members=1), either_model)
def test_cobham_where_no_publication_has_two_packets(streams, model):
    np.testing.assert_allclose(waits(model(streams)), _cobham(streams), rtol=1e-9)


@often
@given(traffic())
def test_cobham_whatever_the_fan_out_where_arrivals_are_independent(streams):
    np.testing.assert_allclose(waits(independent(streams)), _cobham(streams), rtol=1e-9)


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


@often
@given(traffic(), either_model, st.data())
def test_dropping_everything_is_as_if_the_stream_were_absent(streams, model, data):
    streams = model(streams)
    chosen = data.draw(st.integers(0, len(streams.rate) - 1))
    others = np.arange(len(streams.rate)) != chosen
    survival = np.where(others, streams.survival, 0.0)
    kept = ("queue", "priority", "publication", "topic", "rate", "survival", "service_seconds")
    absent = replace(
        streams, **{name: getattr(streams, name)[others] for name in (*kept, "size_variability")}
    )
    silent = delays(replace(streams, survival=survival))
    np.testing.assert_allclose(silent.mean[others], delays(absent).mean, rtol=1e-9)
    np.testing.assert_allclose(silent.variance[others], delays(absent).variance, rtol=1e-7)


@often
@given(traffic(), either_model, st.data(), st.sampled_from([0.0, 1.0]))
def test_delays_are_continuous_where_drop_rates_end(streams, model, data, limit):
    streams = model(streams)
    chosen = data.draw(st.integers(0, len(streams.rate) - 1))
    # The other streams give way, so that keeping everything does not overload the link.
    calm = replace(streams, service_seconds=streams.service_seconds / 20)
    at, near = calm.survival.copy(), calm.survival.copy()
    at[chosen], near[chosen] = limit, abs(limit - 1e-9)
    there, close = delays(replace(calm, survival=at)), delays(replace(calm, survival=near))
    np.testing.assert_allclose(close.mean, there.mean, rtol=1e-6)
    nothing = 1e-6 * float(calm.service_seconds.max()) ** 2
    np.testing.assert_allclose(close.variance, there.variance, rtol=1e-5, atol=nothing)


@often
@given(traffic(classes=1))
def test_one_class_is_pollaczek_khinchine_with_batches(streams):
    load = (streams.rate * streams.survival * streams.service_seconds).sum()
    second = sum(_batch_second_moment(streams, p) for p in set(streams.publication))
    for row, wait in enumerate(waits(streams)):
        mates = (streams.publication == streams.publication[row]).nonzero()[0]
        mates = mates[mates != row]
        ahead = (streams.survival[mates] * streams.service_seconds[mates]).sum() / 2
        assert wait == pytest.approx(second / (2 * (1 - load)) + ahead, rel=1e-9)


def _batch_second_moment(streams: QueueTraffic, publication: int) -> float:
    """λ E[X²] by going through all ways in which the drop coins may fall."""
    rows = (streams.publication == publication).nonzero()[0]
    moment = 0.0
    for coins in product((0, 1), repeat=len(rows)):
        falls = np.array(coins)
        likely = np.where(falls, streams.survival[rows], 1 - streams.survival[rows]).prod()
        moment += likely * (falls * streams.service_seconds[rows]).sum() ** 2
    first = rows[0]
    return float(streams.rate[first] * (1 + streams.size_variability[first]) * moment)


def _one_topic(rate: float, *, exponential: bool) -> Bottleneck:
    topic = PublishedTopic(name="t", rate=rate, exponential=exponential)
    wanted = Wanted(subscriber="n", filter="t", topics=(0,), priority=0)
    return Bottleneck(topics=[topic], wanted=[wanted], bytes_per_second=10_000.0)


@often
@given(st.floats(0.5, 99.0), st.sampled_from(["fan-out", "independent"]))
def test_one_exponential_stream_is_an_mm1_queue(rate, model):
    table = predict(_one_topic(rate, exponential=True).scenario(), model=model)
    mean = 1 / (100.0 - rate)
    assert table.delay_mean_seconds[0] == pytest.approx(mean, rel=1e-6)
    assert table.delay_variance[0] == pytest.approx(mean**2, rel=1e-6)
    assert table.delay_p95_seconds[0] == pytest.approx(-np.log(0.05) * mean, rel=1e-6)


@often
@given(st.lists(st.floats(0.5, 20.0), min_size=1, max_size=5), st.floats(0.05, 0.95))
def test_equation_4_of_the_paper_is_exact_for_equal_exponential_sizes(rates, load):
    topics = [
        PublishedTopic(name=f"t{v}", rate=rate, exponential=True) for v, rate in enumerate(rates)
    ]
    wanted = [
        Wanted(subscriber="n", filter=topic.name, topics=(v,), priority=0)
        for v, topic in enumerate(topics)
    ]
    scenario = Bottleneck(topics=topics, wanted=wanted).at_load(1e-6).scenario()
    uplink, downlink = scenario.network.switches
    slow = replace(uplink, bandwidth_bits_per_second=sum(rates) * 800 / load)
    network = replace(scenario.network, switches=(slow, downlink))
    scenario = replace(scenario, network=network)
    exact, paper = predict(scenario, fifo="exact"), predict(scenario, fifo="paper")
    np.testing.assert_allclose(paper.delay_mean_seconds, exact.delay_mean_seconds, rtol=1e-9)


equal_sizes = traffic(most_load=0.9, sizes=(1.0, 1.0), random_sizes=False)
bursts_in_packets = st.floats(1.0, 30.0)


@often
@given(equal_sizes, either_model, bursts_in_packets)
def test_a_burst_never_lengthens_a_delay_of_equal_packets(streams, model, packets):
    streams = model(streams)
    burst = packets * float(streams.service_seconds[0])
    shaped = delays(streams, burst_seconds=burst).mean
    assert (shaped <= delays(streams).mean * (1 + ROUNDING)).all()


@often
@given(equal_sizes, either_model)
def test_a_burst_of_one_packet_leaves_the_wait_of_equal_packets_as_it_was(streams, model):
    """Such a bucket saves nothing up: a packet only leaves at its start, not at its end."""
    streams = model(streams)
    one_packet = float(streams.service_seconds[0])
    np.testing.assert_allclose(waits(streams, burst_seconds=one_packet), waits(streams), rtol=1e-6)


@often
@given(traffic(most_load=0.9), either_model, bursts_in_packets)
def test_a_burst_never_lengthens_a_delay_of_packets_of_any_size(streams, model, packets):
    streams = model(streams)
    burst = packets * float(streams.service_seconds.max())
    shaped = delays(streams, burst_seconds=burst).mean
    assert (shaped <= delays(streams).mean * (1 + ROUNDING)).all()
