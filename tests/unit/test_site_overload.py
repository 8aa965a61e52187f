"""Queues that are offered too much: who still gets through, what is said of the others."""

import pytest
from small_site import (
    Document,
    assign,
    path_of_two_switches,
    predicted,
    published,
    queue_of,
    site,
    subscribed,
)

from firedex.wire import Prediction, SubscriptionPrediction

OFFERED = 30 * 800
"""Bits per second of smoke/#."""


def overloaded(times: float = 2.0, **switch: object) -> Document:
    """The small site, its managed switch offered so many times what it carries."""
    document = site()
    document["network"]["switches"][1] |= {
        "bandwidth_bits_per_second": OFFERED / times,
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


def test_an_endless_queue_that_grows_has_no_delay_and_says_why() -> None:
    prediction = predicted(overloaded())
    row = only_row(prediction)
    assert row.method == "unstable"
    assert row.delay_mean_seconds is None
    assert (row.delay_p50_seconds, row.delay_p95_seconds, row.delay_p99_seconds) == (None,) * 3
    assert row.success_rate == pytest.approx(0.5)
    assert row.reason is not None
    assert row.reason.startswith("s1 to hosts: offered 2 times what it carries")
    assert "grows without bound" in queue_reason(prediction, "s1 to hosts")
    assert {s.id: s.utilization for s in prediction.switches}["s1"] == pytest.approx(2.0)


def test_exactly_full_is_too_full() -> None:
    assert only_row(predicted(overloaded(1.0))).method == "unstable"
    assert only_row(predicted(overloaded(0.999))).method == "queueing"


def test_a_stable_queue_gives_no_reasons() -> None:
    prediction = predicted(site())
    assert only_row(prediction).reason is None
    assert all(queue.stable and queue.reason is None for queue in prediction.queues)


def test_classes_above_the_overload_do_not_feel_it() -> None:
    document = overloaded(1.0)
    document["subscribers"] = [subscribed(name, "smoke/1", "smoke/2") for name in ("a", "b")]
    document["assignment"] = [
        assign(name, topic, flow=flow, priority=flow)
        for name in ("a", "b")
        for flow, topic in enumerate(("smoke/1", "smoke/2"))
    ]
    prediction = predicted(document)  # class 0 offers 20 of 30 packets a second, class 1 offers 40
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
        ("shared-push-out", 100 / 15),  # the buffer, over what gets through
        ("per-class-head-drop", 100 / 30),  # the buffer, over what arrives
    ],
)
def test_a_finite_buffer_that_overflows_is_as_long_as_it_takes_to_pass(
    kind: str, wait: float
) -> None:
    prediction = predicted(overloaded(buffer={"kind": kind, "packets": 100}))
    row = only_row(prediction)
    transmission = 800 / (OFFERED / 2)
    assert row.method == "fluid"
    assert row.success_rate == pytest.approx(0.5)
    assert row.delay_mean_seconds == pytest.approx(wait + transmission, rel=1e-3)
    assert row.reason == f"s1 to hosts: {queue_reason(prediction, 's1 to hosts')}"
    assert "its buffer overflows" in row.reason


def test_a_finite_buffer_that_suffices_changes_nothing() -> None:
    document = site()
    document["network"]["switches"][1]["buffer"] = {"kind": "shared-push-out", "packets": 1000}
    assert only_row(predicted(document)) == only_row(predicted(site()))


@pytest.mark.parametrize(
    ("field", "rate", "queue", "times"),
    [
        ("in_events_per_second", 50.0, "b1 in", "1.4"),
        ("out_events_per_second", 20.0, "b1 out to command", "1.5"),
    ],
)
def test_an_overloaded_broker_is_named(field: str, rate: float, queue: str, times: str) -> None:
    document = site()
    document["network"]["broker"][field] = rate
    prediction = predicted(document)
    row = only_row(prediction)
    assert (row.method, row.delay_mean_seconds) == ("unstable", None)
    assert row.reason is not None
    assert row.reason.startswith(f"{queue}: offered {times} times what it carries")
    assert prediction.first_to_saturate == queue


def test_a_switch_that_cannot_look_up_fast_enough_is_named() -> None:
    document = site()
    document["network"]["switches"][1]["in_packets_per_second"] = 20.0
    prediction = predicted(document)
    row = only_row(prediction)
    assert (row.method, row.delay_mean_seconds) == ("unstable", None)
    assert "offered 1.5 times" in queue_reason(prediction, "s1 in")
    assert row.reason is not None
    assert row.reason.startswith("s1 in: offered 1.5 times")


def test_an_overloaded_publishers_link_is_named() -> None:
    document = site()
    document["network"]["switches"][0]["bandwidth_bits_per_second"] = 70 * 800 / 2
    row = only_row(predicted(document))
    assert (row.method, row.delay_mean_seconds) == ("unstable", None)
    assert row.reason is not None
    assert row.reason.startswith("s0 to broker: offered 2 times")


def test_a_publishers_link_with_a_finite_buffer_that_overflows_is_a_fluid_figure() -> None:
    document = site()
    document["network"]["switches"][0] |= {
        "bandwidth_bits_per_second": 70 * 800 / 2,
        "buffer": {"kind": "shared-push-out", "packets": 10},
    }
    row = only_row(predicted(document))
    assert row.success_rate == pytest.approx(0.5)
    assert row.method == "fluid"
    assert row.reason is not None
    assert row.reason.startswith("s0 to broker: ")


def test_of_two_overloaded_switches_the_first_on_the_way_is_named() -> None:
    document = path_of_two_switches(bandwidth_bits_per_second=OFFERED / 8)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = OFFERED / 2
    row = only_row(predicted(document))
    assert row.success_rate == pytest.approx(1 / 8)
    assert row.reason is not None
    assert row.reason.startswith("s1->s2: ")


def test_where_everything_is_dropped_nothing_is_delivered() -> None:
    prediction = predicted(site(assignment=[assign("command", "smoke/#", drop_rate=1.0)]))
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
def test_the_queue_that_saturates_first_is_the_fullest(part: str, field: str, queue: str) -> None:
    document = site()
    uplink, downlink = document["network"]["switches"]
    downlink["in_packets_per_second"] = 1e5
    broker = document["network"]["broker"]
    broker |= {"in_events_per_second": 1e5, "out_events_per_second": 1e5}
    slow = 1e5 if field.startswith("bandwidth") else 100.0
    {"uplink": uplink, "downlink": downlink, "broker": broker}[part][field] = slow
    prediction = predicted(document)
    assert prediction.first_to_saturate == queue
    assert queue_of(prediction, queue) == max(q.utilization for q in prediction.queues)


def busy(**each: object) -> Document:
    """A link at 80 %, so that delays spread."""
    document = overloaded(0.8)
    document["subscribers"] = [subscribed("command", "smoke/#", **each)]
    return document


def percentile(level: int) -> float:
    delay = getattr(only_row(predicted(busy())), f"delay_p{level}_seconds")
    assert delay is not None
    return float(delay)


@pytest.mark.parametrize("level", [50, 95, 99])
def test_a_deadline_is_met_by_its_percentile(level: int) -> None:
    for factor, met in ((1.01, True), (0.99, False)):
        prediction = predicted(
            busy(deadline_seconds=factor * percentile(level), deadline_percentile=level / 100)
        )
        assert only_row(prediction).deadline_met is met
        assert prediction.deadlines_missed == (not met)
        assert only_row(prediction).timely_fraction == pytest.approx(level / 100, abs=0.02)


def test_a_deadline_shorter_than_the_transmission_is_never_met() -> None:
    prediction = predicted(
        site(subscribers=[subscribed("command", "smoke/#", deadline_seconds=1e-6)])
    )
    assert only_row(prediction).deadline_met is False
    assert only_row(prediction).timely_fraction == 0.0
    assert prediction.timely_utility == 0.0


def test_timely_is_what_is_delivered_and_in_time() -> None:
    document = site(subscribers=[subscribed("command", "smoke/#", deadline_seconds=10.0)])
    document["assignment"] = [assign("command", "smoke/#", drop_rate=0.2)]
    prediction = predicted(document)
    assert only_row(prediction).timely_fraction == pytest.approx(0.8)
    assert only_row(prediction).deadline_met is True
    assert prediction.timely_utility == pytest.approx(prediction.utility)


def test_without_a_deadline_all_that_is_delivered_is_timely() -> None:
    row = only_row(predicted(site(assignment=[assign("command", "smoke/#", drop_rate=0.2)])))
    assert (row.deadline_seconds, row.deadline_met) == (None, None)
    assert row.timely_fraction == pytest.approx(0.8)


def test_a_delay_that_does_not_exist_meets_no_deadline() -> None:
    document = overloaded()
    document["subscribers"] = [subscribed("command", "smoke/#", deadline_seconds=1000.0)]
    prediction = predicted(document)
    assert only_row(prediction).deadline_met is False
    assert only_row(prediction).timely_fraction == 0.0
    assert prediction.deadlines_missed == 1


def test_a_class_weighs_success_by_what_is_offered_and_delay_by_what_is_delivered() -> None:
    document = site(subscribers=[subscribed("command", "smoke/1", "heat/1")])
    document["topics"][2]["event_bytes"] = 1000
    document["publishers"] = [published("p0", {"smoke/1": 10.0, "heat/1": 30.0})]
    document["assignment"] = [
        assign("command", "smoke/1", flow=0, drop_rate=0.0),
        assign("command", "heat/1", flow=1, drop_rate=0.5),
    ]
    prediction = predicted(document)
    (row,) = prediction.classes
    smoke, heat = (s.delay_mean_seconds or 0.0 for s in prediction.subscriptions)
    assert smoke < heat
    assert (row.subscriptions, row.offered_events_per_second) == (2, 40.0)
    assert row.success_rate == pytest.approx((10 + 15) / 40)
    assert row.delay_mean_seconds == pytest.approx((10 * smoke + 15 * heat) / 25)
