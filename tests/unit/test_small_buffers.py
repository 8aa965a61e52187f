"""What finite buffers, brokers and lookups let through: less than all of it, and it is said."""

import heapq

import numpy as np
import pytest
from small_site import Document, assign, predicted, published, site, subscribed, topic

KINDS = ["shared-push-out", "per-class-head-drop"]


def nearly_full(packets: int | None, kind: str = "shared-push-out") -> Document:
    """One topic at 90 % of the link, one subscriber: M/M/1 with exponential sizes."""
    document = site(
        topics=[topic("t", size_distribution="exponential")],
        publishers=[published("p0", {"t": 1125.0})],
        subscribers=[subscribed("command", "t")],
        assignment=[assign("command", "t")],
    )
    if packets is not None:
        document["network"]["switches"][1]["buffer"] = {"kind": kind, "packets": packets}
    return document


def simulated_loss(packets: int) -> float:
    """M/M/1 with a waiting room of ``packets``, event by event."""
    generator = np.random.default_rng(1)
    arrival, lost, leaving = 0.0, 0, [0.0]
    count = 200_000
    for gap, service in zip(
        generator.exponential(1 / 1125.0, count),
        generator.exponential(1 / 1250.0, count),
        strict=True,
    ):
        arrival += gap
        while leaving and leaving[0] <= arrival:
            heapq.heappop(leaving)
        if len(leaving) > packets:
            lost += 1
            continue
        heapq.heappush(leaving, max([arrival, *leaving]) + service)
    return lost / count


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_buffer_loses_below_overload(kind: str) -> None:
    endless = predicted(nearly_full(None)).subscriptions[0]
    small = predicted(nearly_full(10, kind)).subscriptions[0]
    assert endless.method == "queueing"
    assert small.method == "fluid"
    assert "its buffer is full at times" in (small.reason or "")
    assert small.success_rate < 0.97
    assert small.delay_mean_seconds < endless.delay_mean_seconds
    assert small.delay_p95_seconds < endless.delay_p95_seconds


def test_what_it_loses_is_what_is_lost() -> None:
    predicted_loss = 1 - predicted(nearly_full(10)).subscriptions[0].success_rate
    assert predicted_loss == pytest.approx(simulated_loss(10), rel=0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_buffer_changes_nothing(kind: str) -> None:
    endless = predicted(nearly_full(None)).subscriptions[0]
    large = predicted(nearly_full(5000, kind)).subscriptions[0]
    assert large.method == "queueing"
    assert large.delay_mean_seconds == pytest.approx(endless.delay_mean_seconds, rel=1e-6)


@pytest.mark.parametrize("field", ["in_events_per_second", "out_events_per_second"])
def test_a_broker_lets_through_what_it_can(field: str) -> None:
    document = site(
        publishers=[published("p0", {"smoke/1": 100.0})],
        subscribers=[subscribed("command", "smoke/1")],
        assignment=[assign("command", "smoke/1")],
    )
    document["network"]["broker"][field] = 10.0
    row = predicted(document).subscriptions[0]
    assert row.success_rate == pytest.approx(0.1)
    assert row.delay_mean_seconds is None


def test_a_switch_that_looks_up_both_ways_is_counted_once() -> None:
    document = site(
        publishers=[published("p0", {"smoke/1": 10.0}, switch="s1")],
        subscribers=[subscribed("command", "smoke/1")],
        assignment=[assign("command", "smoke/1")],
    )
    document["network"]["switches"][1]["in_packets_per_second"] = 15.0
    prediction = predicted(document)
    lookup = next(queue for queue in prediction.queues if queue.id == "s1 in")
    assert lookup.utilization == pytest.approx(20 / 15)
    assert prediction.subscriptions[0].method == "unstable"
