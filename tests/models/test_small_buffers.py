"""Losses at small buffers, brokers and switch lookups."""

import heapq

import numpy as np
import pytest

from tests.support.small_site import (
    Document,
    assign,
    predict_site,
    publisher_entry,
    site,
    subscriber_entry,
    topic,
)

KINDS = ["shared-push-out", "per-class-head-drop"]


def nearly_full_link(packets: int | None, kind: str = "shared-push-out") -> Document:
    """Return a link with a load of 90 % and exponential sizes: an M/M/1 queue."""
    document = site(
        topics=[topic("t", size_distribution="exponential")],
        publishers=[publisher_entry("p0", {"t": 1125.0})],
        subscribers=[subscriber_entry("command", "t")],
        assignment=[assign("command", "t")],
    )
    if packets is not None:
        document["network"]["switches"][1]["buffer"] = {"kind": kind, "packets": packets}
    return document


def simulated_loss(packets: int) -> float:
    """Simulate an M/M/1 queue with a buffer of ``packets``, and return the lost fraction."""
    generator = np.random.default_rng(1)
    arrival, lost, departures = 0.0, 0, [0.0]
    count = 200_000
    for gap, service in zip(
        generator.exponential(1 / 1125.0, count),
        generator.exponential(1 / 1250.0, count),
        strict=True,
    ):
        arrival += gap
        while departures and departures[0] <= arrival:
            heapq.heappop(departures)
        if len(departures) > packets:
            lost += 1
            continue
        heapq.heappush(departures, max([arrival, *departures]) + service)
    return lost / count


@pytest.mark.parametrize("kind", KINDS)
def test_small_buffer_loses_packets_below_full_load(kind: str) -> None:
    infinite = predict_site(nearly_full_link(None)).subscriptions[0]
    small = predict_site(nearly_full_link(10, kind)).subscriptions[0]
    assert infinite.method == "queueing"
    assert small.method == "fluid"
    assert "the buffer is sometimes full" in (small.reason or "")
    assert small.success_rate < 0.97
    assert small.delay_mean_seconds is not None
    assert infinite.delay_mean_seconds is not None
    assert small.delay_mean_seconds < infinite.delay_mean_seconds
    assert small.delay_p95_seconds is not None
    assert infinite.delay_p95_seconds is not None
    assert small.delay_p95_seconds < infinite.delay_p95_seconds


def test_loss_of_small_buffer_agrees_with_simulation() -> None:
    predicted_loss = 1 - predict_site(nearly_full_link(10)).subscriptions[0].success_rate
    assert predicted_loss == pytest.approx(simulated_loss(10), rel=0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_large_buffer_has_same_delay_as_infinite_buffer(kind: str) -> None:
    infinite = predict_site(nearly_full_link(None)).subscriptions[0]
    large = predict_site(nearly_full_link(5000, kind)).subscriptions[0]
    assert large.method == "queueing"
    assert large.delay_mean_seconds == pytest.approx(infinite.delay_mean_seconds, rel=1e-6)


@pytest.mark.parametrize("field", ["in_events_per_second", "out_events_per_second"])
def test_overloaded_broker_delivers_up_to_its_capacity(field: str) -> None:
    document = site(
        publishers=[publisher_entry("p0", {"smoke/1": 100.0})],
        subscribers=[subscriber_entry("command", "smoke/1")],
        assignment=[assign("command", "smoke/1")],
    )
    document["network"]["broker"][field] = 10.0
    row = predict_site(document).subscriptions[0]
    assert row.success_rate == pytest.approx(0.1)
    assert row.delay_mean_seconds is None


def test_lookup_load_is_the_sum_of_both_directions() -> None:
    document = site(
        publishers=[publisher_entry("p0", {"smoke/1": 10.0}, switch="s1")],
        subscribers=[subscriber_entry("command", "smoke/1")],
        assignment=[assign("command", "smoke/1")],
    )
    document["network"]["switches"][1]["in_packets_per_second"] = 15.0
    prediction = predict_site(document)
    lookup = next(queue for queue in prediction.queues if queue.id == "s1 in")
    assert lookup.utilization == pytest.approx(20 / 15)
    assert prediction.subscriptions[0].method == "unstable"
