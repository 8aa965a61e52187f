"""Predictions for overloaded queues: success rates, delays, reasons and deadlines."""

from typing import Any

import pytest

from firedex.wire import Prediction, SubscriptionPrediction
from tests.support.small_site import (
    Document,
    assign,
    path_of_two_switches,
    predict_site,
    publisher_entry,
    queue_load,
    site,
    subscriber_entry,
)

OFFERED = 30 * 800
"""Bits per second of smoke/#."""


def overloaded_site(load: float = 2.0, **switch: object) -> Document:
    """Return the small site with an offered load of ``load`` times the capacity of its switch."""
    document = site()
    document["network"]["switches"][1] |= {
        "bandwidth_bits_per_second": OFFERED / load,
        **switch,
    }
    return document


def only_row(prediction: Prediction) -> SubscriptionPrediction:
    (row,) = prediction.subscriptions
    return row


def queue_reason(prediction: Prediction, name: str) -> str:
    (queue,) = [queue for queue in prediction.queues if queue.id == name]
    assert not queue.stable
    assert queue.reason is not None
    return queue.reason


def test_overloaded_infinite_queue_has_no_delay_but_a_reason() -> None:
    prediction = predict_site(overloaded_site())
    row = only_row(prediction)
    assert row.method == "unstable"
    assert row.delay_mean_seconds is None
    assert (row.delay_p50_seconds, row.delay_p95_seconds, row.delay_p99_seconds) == (None,) * 3
    assert row.success_rate == pytest.approx(0.5)
    assert row.reason is not None
    assert row.reason.startswith("s1 to hosts: the offered load is 2 times the capacity")
    assert "grows without bound" in queue_reason(prediction, "s1 to hosts")
    assert {s.id: s.utilization for s in prediction.switches}["s1"] == pytest.approx(2.0)


def test_queue_with_load_1_is_unstable() -> None:
    assert only_row(predict_site(overloaded_site(1.0))).method == "unstable"
    assert only_row(predict_site(overloaded_site(0.999))).method == "queueing"


def test_stable_queue_has_no_reason() -> None:
    prediction = predict_site(site())
    assert only_row(prediction).reason is None
    assert all(queue.stable and queue.reason is None for queue in prediction.queues)


def test_overload_does_not_affect_higher_classes() -> None:
    document = overloaded_site(1.0)
    document["subscribers"] = [subscriber_entry(name, "smoke/1", "smoke/2") for name in ("a", "b")]
    document["assignment"] = [
        assign(name, topic, flow=flow, priority=flow)
        for name in ("a", "b")
        for flow, topic in enumerate(("smoke/1", "smoke/2"))
    ]
    prediction = predict_site(
        document
    )  # class 0 offers 20 of 30 packets a second, class 1 offers 40
    by_class = {row.priority: row for row in prediction.classes}
    assert by_class[0].success_rate == 1.0
    assert by_class[0].delay_mean_seconds is not None
    assert by_class[1].success_rate == pytest.approx(0.25)
    assert by_class[1].delay_mean_seconds is None
    assert [row.method for row in prediction.subscriptions] == ["queueing", "unstable"] * 2
    assert queue_reason(prediction, "s1 to hosts").endswith("from class 1 down")


@pytest.mark.parametrize(
    ("kind", "wait"),
    [
        ("shared-push-out", 100 / 15),  # buffer size divided by the delivered rate
        ("per-class-head-drop", 100 / 30),  # buffer size divided by the arrival rate
    ],
)
def test_delay_of_overflowing_buffer_is_its_drain_time(kind: str, wait: float) -> None:
    prediction = predict_site(overloaded_site(buffer={"kind": kind, "packets": 100}))
    row = only_row(prediction)
    transmission = 800 / (OFFERED / 2)
    assert row.method == "fluid"
    assert row.success_rate == pytest.approx(0.5)
    assert row.delay_mean_seconds == pytest.approx(wait + transmission, rel=1e-3)
    assert row.reason == f"s1 to hosts: {queue_reason(prediction, 's1 to hosts')}"
    assert "the buffer overflows" in row.reason


def test_sufficient_buffer_does_not_change_prediction() -> None:
    document = site()
    document["network"]["switches"][1]["buffer"] = {"kind": "shared-push-out", "packets": 1000}
    assert only_row(predict_site(document)) == only_row(predict_site(site()))


@pytest.mark.parametrize(
    ("field", "rate", "queue", "times"),
    [
        ("in_events_per_second", 50.0, "b1 in", "1.4"),
        ("out_events_per_second", 20.0, "b1 out to command", "1.5"),
    ],
)
def test_overloaded_broker_is_named_in_reason(
    field: str, rate: float, queue: str, times: str
) -> None:
    document = site()
    document["network"]["broker"][field] = rate
    prediction = predict_site(document)
    row = only_row(prediction)
    assert (row.method, row.delay_mean_seconds) == ("unstable", None)
    assert row.reason is not None
    assert row.reason.startswith(f"{queue}: the offered load is {times} times the capacity")
    assert prediction.first_to_saturate == queue


def test_overloaded_switch_lookup_is_named_in_reason() -> None:
    document = site()
    document["network"]["switches"][1]["in_packets_per_second"] = 20.0
    prediction = predict_site(document)
    row = only_row(prediction)
    assert (row.method, row.delay_mean_seconds) == ("unstable", None)
    assert "the offered load is 1.5 times" in queue_reason(prediction, "s1 in")
    assert row.reason is not None
    assert row.reason.startswith("s1 in: the offered load is 1.5 times")


def test_overloaded_uplink_is_named_in_reason() -> None:
    document = site()
    document["network"]["switches"][0]["bandwidth_bits_per_second"] = 70 * 800 / 2
    row = only_row(predict_site(document))
    assert (row.method, row.delay_mean_seconds) == ("unstable", None)
    assert row.reason is not None
    assert row.reason.startswith("s0 to broker: the offered load is 2 times")


def test_uplink_with_overflowing_buffer_uses_fluid_model() -> None:
    document = site()
    document["network"]["switches"][0] |= {
        "bandwidth_bits_per_second": 70 * 800 / 2,
        "buffer": {"kind": "shared-push-out", "packets": 10},
    }
    row = only_row(predict_site(document))
    assert row.success_rate == pytest.approx(0.5)
    assert row.method == "fluid"
    assert row.reason is not None
    assert row.reason.startswith("s0 to broker: ")


def test_first_overloaded_switch_on_the_path_is_named_in_reason() -> None:
    document = path_of_two_switches(bandwidth_bits_per_second=OFFERED / 8)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = OFFERED / 2
    row = only_row(predict_site(document))
    assert row.success_rate == pytest.approx(1 / 8)
    assert row.reason is not None
    assert row.reason.startswith("s1->s2: ")


def test_drop_rate_1_delivers_nothing() -> None:
    prediction = predict_site(site(assignment=[assign("command", "smoke/#", drop_rate=1.0)]))
    row = only_row(prediction)
    assert (row.success_rate, row.method) == (0.0, "nothing-delivered")
    assert (row.delay_mean_seconds, row.reason) == (None, "every event is dropped")
    assert prediction.achieved_utility_rate == 0.0
    assert prediction.classes[0].delay_mean_seconds is None


@pytest.mark.parametrize(
    ("part", "field", "queue"),
    [
        ("uplink", "bandwidth_bits_per_second", "s0 to broker"),
        ("downlink", "bandwidth_bits_per_second", "s1 to hosts"),
        ("downlink", "in_packets_per_second", "s1 in"),
        ("broker", "in_events_per_second", "b1 in"),
        ("broker", "out_events_per_second", "b1 out to command"),
    ],
)
def test_first_queue_to_saturate_has_the_highest_load(part: str, field: str, queue: str) -> None:
    document = site()
    uplink, downlink = document["network"]["switches"]
    downlink["in_packets_per_second"] = 1e5
    broker = document["network"]["broker"]
    broker |= {"in_events_per_second": 1e5, "out_events_per_second": 1e5}
    low_rate = 1e5 if field.startswith("bandwidth") else 100.0
    {"uplink": uplink, "downlink": downlink, "broker": broker}[part][field] = low_rate
    prediction = predict_site(document)
    assert prediction.first_to_saturate == queue
    assert queue_load(prediction, queue) == max(q.utilization for q in prediction.queues)


def busy_site(**options: Any) -> Document:
    """Return a site with a load of 80 %, so that delays vary."""
    document = overloaded_site(0.8)
    document["subscribers"] = [subscriber_entry("command", "smoke/#", **options)]
    return document


def delay_percentile(level: int) -> float:
    delay = getattr(only_row(predict_site(busy_site())), f"delay_p{level}_seconds")
    assert delay is not None
    return float(delay)


@pytest.mark.parametrize("level", [50, 95, 99])
def test_deadline_is_met_if_its_percentile_is_in_time(level: int) -> None:
    for factor, met in ((1.01, True), (0.99, False)):
        prediction = predict_site(
            busy_site(
                deadline_seconds=factor * delay_percentile(level), deadline_percentile=level / 100
            )
        )
        assert only_row(prediction).deadline_met is met
        assert prediction.deadlines_missed == (not met)
        assert only_row(prediction).timely_fraction == pytest.approx(level / 100, abs=0.02)


def test_deadline_shorter_than_transmission_is_not_met() -> None:
    prediction = predict_site(
        site(subscribers=[subscriber_entry("command", "smoke/#", deadline_seconds=1e-6)])
    )
    assert only_row(prediction).deadline_met is False
    assert only_row(prediction).timely_fraction == 0.0
    assert prediction.timely_utility == 0.0


def test_timely_fraction_counts_delivered_events_within_deadline() -> None:
    document = site(subscribers=[subscriber_entry("command", "smoke/#", deadline_seconds=10.0)])
    document["assignment"] = [assign("command", "smoke/#", drop_rate=0.2)]
    prediction = predict_site(document)
    assert only_row(prediction).timely_fraction == pytest.approx(0.8)
    assert only_row(prediction).deadline_met is True
    assert prediction.timely_utility == pytest.approx(prediction.utility)


def test_delivered_events_without_deadline_are_timely() -> None:
    row = only_row(predict_site(site(assignment=[assign("command", "smoke/#", drop_rate=0.2)])))
    assert (row.deadline_seconds, row.deadline_met) == (None, None)
    assert row.timely_fraction == pytest.approx(0.8)


def test_subscription_without_delay_misses_its_deadline() -> None:
    document = overloaded_site()
    document["subscribers"] = [subscriber_entry("command", "smoke/#", deadline_seconds=1000.0)]
    prediction = predict_site(document)
    assert only_row(prediction).deadline_met is False
    assert only_row(prediction).timely_fraction == 0.0
    assert prediction.deadlines_missed == 1


def test_class_success_is_weighted_by_offered_and_delay_by_delivered_events() -> None:
    document = site(subscribers=[subscriber_entry("command", "smoke/1", "heat/1")])
    document["topics"][2]["event_bytes"] = 1000
    document["publishers"] = [publisher_entry("p0", {"smoke/1": 10.0, "heat/1": 30.0})]
    document["assignment"] = [
        assign("command", "smoke/1", flow=0, drop_rate=0.0),
        assign("command", "heat/1", flow=1, drop_rate=0.5),
    ]
    prediction = predict_site(document)
    (row,) = prediction.classes
    smoke, heat = (s.delay_mean_seconds or 0.0 for s in prediction.subscriptions)
    assert smoke < heat
    assert (row.subscriptions, row.offered_events_per_second) == (2, 40.0)
    assert row.success_rate == pytest.approx((10 + 15) / 40)
    assert row.delay_mean_seconds == pytest.approx((10 * smoke + 15 * heat) / 25)
