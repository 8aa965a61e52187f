"""Alerts in words, and the figures they follow from; no browser, no service."""

from datetime import UTC, datetime
from typing import Any

import pytest

from firedex.dashboard.alerts import alerts
from firedex.dashboard.delivery_alerts import Deliveries, Unpublished
from firedex.dashboard.delivery_gaps import ShortFlow, Silence
from firedex.dashboard.flow_measurements import FlowForecast, FlowMeasurement
from firedex.dashboard.link_reasons import (
    LinkTrouble,
    link_trouble,
    slowness_of_ports,
    with_reasons,
)
from firedex.dashboard.plan_alerts import Unplanned
from firedex.dashboard.quiet_topics import QuietTopic
from firedex.dashboard.unseen_links import UnseenLink
from firedex.dashboard.wording import filter_words, loss_text, rate_text, seconds_text
from firedex.wire.overview import (
    ClassNow,
    ClassShare,
    LateSubscription,
    LinkNow,
    PartHealth,
)
from firedex.wire.service_api import PushTrouble

DELIVERED = Deliveries(measured=True, predicted_per_second=10.0, window_seconds=30.0)
SINCE = datetime(2026, 3, 1, 14, 2, tzinfo=UTC)


def late(**changes: Any) -> LateSubscription:
    given: dict[str, Any] = {
        "subscriber": "crew-7",
        "filter": "floor/7/smoke",
        "priority": 0,
        "deadline_seconds": 0.5,
        "predicted_delay_seconds": 0.3,
        "delay_p95_seconds": 1.7,
        "late_by_seconds": 1.2,
    }
    return LateSubscription(**{**given, **changes})


def link(bandwidth: float = 5e6, planned: float = 1e6, **changes: Any) -> LinkNow:
    given: dict[str, Any] = {
        "switch": "s3",
        "bandwidth_bits_per_second": bandwidth,
        "full_bandwidth_bits_per_second": 10e6,
        "reduced_since": SINCE,
        "classes": (ClassShare(priority=0, planned_bits_per_second=planned),),
    }
    return LinkNow(**{**given, **changes})


NOTHING: dict[str, Any] = {
    "trouble": None,
    "late": (),
    "links": (),
    "classes": (),
    "parts": (),
    "deliveries": DELIVERED,
}


def said(**given: Any) -> list[str]:
    return [
        f"{alert.text} since {alert.since:%H:%M}" if alert.since else alert.text
        for alert in alerts(**{**NOTHING, **given})
    ]


def test_a_late_subscription_is_said_with_the_link_that_has_lost_bandwidth() -> None:
    trouble = link_trouble(link())
    assert trouble is not None
    ways = {"crew-7": (("s1", "s3"), ("s3", None))}
    predicted = late(predicted_delay_seconds=1.6)
    explained = with_reasons([predicted], ways, {("s3", None): trouble})
    assert said(late=explained, links=[link()]) == [
        "floor 7 smoke is 1.2 s late for crew-7: link s3 has lost half its bandwidth since 14:02"
    ]


def reason(one: LateSubscription, trouble: LinkTrouble, **slowest: float) -> str | None:
    ways = {"crew-7": (("s3", None),)}
    slowness = {("s3", None): {int(name[1:]): p95 for name, p95 in slowest.items()}}
    (found,) = with_reasons([one], ways, {("s3", None): trouble}, slowness)
    return found.reason


def test_a_loss_that_does_not_explain_it_is_told_as_what_it_is() -> None:
    lost = link_trouble(link())
    assert lost is not None
    meanwhile = f"meanwhile {lost.text}"
    assert reason(late(), lost) == meanwhile, "by the plan made with it, it is in time"
    assert reason(late(predicted_delay_seconds=None), lost) == lost.text
    assert reason(late(), lost, c1=0.02) == meanwhile, "what is served later is there sooner"
    assert reason(late(), lost, c1=1.9, c2=2.5) == lost.text, "all behind it is as slow"
    assert reason(late(priority=2), lost, c0=1.9) == meanwhile, "what is served before says nothing"
    overloaded = link_trouble(link(planned=6e6))
    assert overloaded is not None
    assert reason(late(), overloaded) == overloaded.text, "before there is a plan with it"
    explained = with_reasons([late()], {"crew-7": (("s3", None),)}, {("s3", None): lost})
    assert said(late=explained, links=[link()]) == [
        "floor 7 smoke is 1.2 s late for crew-7; "
        "meanwhile link s3 has lost half its bandwidth since 14:02"
    ]


def test_how_slow_what_crosses_a_link_is_at_best() -> None:
    def flow(p95: float | None) -> FlowMeasurement:
        return FlowMeasurement(
            delivered=9, numbered=9, missing=0, delay_mean_seconds=p95, delay_p95_seconds=p95
        )

    forecast = FlowForecast(priority=1, offered_per_second=1.0, delivered_per_second=1.0)
    port = ("s3", None)
    flows = {(who, 0): forecast for who in ("a", "b", "c")}
    measured = {("a", 0): flow(2.0), ("b", 0): flow(1.0), ("c", 0): flow(0.1), ("d", 0): flow(0.1)}
    ways = {"a": (port,), "b": (port,), "c": (("s9", None),), "d": (port,)}
    assert slowness_of_ports([port], ways, flows, measured) == {port: {1: 1.0}}


def test_a_link_whose_late_ones_are_not_said_is_said() -> None:
    others = [late(subscriber=f"c{n}", filter=f"x/{n}") for n in range(5)]
    hidden = late(reason="link s3 has lost half its bandwidth", reason_since=SINCE)
    assert "link s3 has lost half its bandwidth since 14:02" in said(
        late=[*others, hidden], links=[link()]
    )


def test_a_link_elsewhere_is_no_reason() -> None:
    troubles = {("s9", None): LinkTrouble(text="link s9 is gone")}
    (same,) = with_reasons([late()], {"crew-7": (("s3", None),)}, troubles)
    assert same.reason is None


def test_a_reason_that_is_known_stays_and_a_small_loss_is_none() -> None:
    trouble = LinkTrouble(text="link s3 has lost half its bandwidth", since=SINCE)
    known = late(reason="its class is full")
    (same,) = with_reasons([known], {"crew-7": (("s3", None),)}, {("s3", None): trouble})
    assert (same.reason, same.reason_since) == ("its class is full", None)
    assert link_trouble(link(bandwidth=9.6e6)) is None
    lost = link_trouble(link(bandwidth=9.4e6))
    assert lost is not None
    assert lost.text == "link s3 has lost 6 % of its bandwidth"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "floor 7 smoke is 1.2 s late for crew-7"),
        ({"predicted": True}, "floor 7 smoke is predicted to be 1.2 s late for crew-7"),
        (
            {"predicted": True, "late_by_seconds": 0.0},
            "floor 7 smoke is predicted to be late for crew-7",
        ),
        ({"late_by_seconds": None}, "floor 7 smoke does not arrive for crew-7"),
    ],
)
def test_how_lateness_is_said(changes: dict[str, Any], words: str) -> None:
    assert said(late=[late(**changes)]) == [words]


def test_many_subscribers_of_a_filter_are_one_alert_and_many_filters_are_counted() -> None:
    crowd = [late(subscriber=f"crew-{n}") for n in range(3)]
    assert said(late=crowd) == ["floor 7 smoke is 1.2 s late for crew-0 and 2 more"]
    many = [late(filter=f"floor/{n}/smoke", subscriber=f"crew-{n}") for n in range(8)]
    texts = said(late=many)
    assert len(texts) == 6
    assert texts[-1] == "3 more filters miss their deadline"


def test_one_subscriber_s_alerts_leave_room_for_others() -> None:
    many = [late(filter=f"x/{n}", subscriber="evil") for n in range(8)]
    texts = said(late=[*many, late(subscriber="command")])
    assert [text.rpartition(" for ")[2] for text in texts[:3]] == ["evil", "evil", "command"]
    assert texts[3:] == ["6 more filters miss their deadline"]
    silent = [silence(0, 4.0, of_class=False, filter=f"x/{n}") for n in range(4)]
    texts = said(deliveries=Deliveries(measured=True, silent=silent, **GIVEN))
    assert (len(texts), texts[-1]) == (3, "nothing comes of 2 more filters or topics")


def test_a_name_does_not_speak_for_the_dashboard() -> None:
    assert filter_words("Nothing to say: all is well") == '"Nothing to say: all is well"'
    assert filter_words("x" * 3000) == "x" * 59 + "…"
    assert len(filter_words("a b" * 3000)) == 62
    assert filter_words("floor/\u202e7") == "floor \N{REPLACEMENT CHARACTER}7"
    assert said(late=[late(subscriber="y" * 128)])[0].endswith(f"late for {'y' * 59}…")


def test_links_without_late_subscriptions_warn_by_themselves() -> None:
    assert said(links=[link()]) == ["link s3 has lost half its bandwidth since 14:02"]
    full = link(bandwidth=10e6, planned=13e6)
    assert said(links=[full]) == ["link s3 would need 130 % of its bandwidth"]
    assert said(links=[link(bandwidth=10e6)]) == []


def test_links_that_the_controller_does_not_see_are_urgent() -> None:
    unseen = [UnseenLink(name=f"core to floor-{n}", since=SINCE) for n in (7, 8)]
    (one,) = alerts(**{**NOTHING, "unseen": unseen})
    assert one.severity == "urgent"
    assert said(unseen=unseen) == [
        "the controller does not see the link core to floor-7 and 1 more since 14:02"
    ]


def test_parts_that_are_silent_or_in_trouble() -> None:
    silent = PartHealth(part="crew-2", kind="client", state="stale", seconds_ago=40.0)
    gateway = PartHealth(part="gateway", kind="gateway", state="stale", seconds_ago=300.0)
    switch = PartHealth(part="s3", kind="switch", state="trouble", detail="not connected")
    well = PartHealth(part="crew-1", kind="client", state="well", seconds_ago=1.0)
    assert said(parts=[well, silent, gateway, switch]) == [
        "gateway has not been heard for 5 min",
        "switch s3: not connected",
        "crew-2 is silent: it is not known what reaches it",
    ]
    crowd = [
        PartHealth(part=f"c{n}", kind="client", state="stale", seconds_ago=40.0) for n in range(6)
    ]
    assert said(parts=crowd) == ["all 6 clients are silent: it is not known what reaches them"]
    given = {**NOTHING, "parts": [well, silent], "deliveries": None}
    ranks = [a.severity for a in alerts(**given)]
    assert ranks == ["warning", "note"], "above notes"


@pytest.mark.parametrize(
    ("silent", "well", "severity"),
    [(1, 0, "urgent"), (1, 1, "warning"), (2, 2, "urgent"), (2, 3, "warning"), (9, 0, "urgent")],
)
def test_many_silent_clients_are_urgent(silent: int, well: int, severity: str) -> None:
    parts = [
        PartHealth(part=f"c{n}", kind="client", state="stale" if n < silent else "well")
        for n in range(silent + well)
    ]
    (one,) = alerts(**{**NOTHING, "parts": parts})
    assert one.severity == severity
    (command,) = alerts(**{**NOTHING, "parts": parts, "commanders": {f"c{silent - 1}"}})
    assert command.severity == "urgent"
    assert command.text.startswith((f"c{silent - 1} ", "all "))


def test_the_network_not_following_comes_first() -> None:
    trouble = PushTrouble(
        error="503 not connected core", since=SINCE, attempts=3, next_attempt_seconds=2.0
    )
    texts = said(trouble=trouble, late=[late()])
    assert texts[0] == "the network does not follow the plan: 503 not connected core since 14:02"


def test_changes_that_no_plan_follows_are_said() -> None:
    def waits(changes: int, seconds: float, *who: str, trouble: Any = None) -> list[str]:
        waiting = Unplanned(changes=changes, since=SINCE, waiting_seconds=seconds, subscribers=who)
        return said(unplanned=waiting, trouble=trouble)

    assert waits(1, 9.0) == []
    assert waits(1, 11.0) == ["a change is not planned yet since 14:02"]
    assert waits(3, 11.0, "crew-8", "crew-9") == [
        "3 changes are not planned yet, nothing is for crew-8 and 1 more since 14:02"
    ]
    assert waits(0, 0.0, "crew-8", "crew-9") == ["crew-8 and 1 more are in no plan"]
    refused = PushTrouble(error="503", since=SINCE, attempts=3, next_attempt_seconds=2.0)
    assert len(waits(1, 11.0, trouble=refused)) == 1, "it is said why"
    severities = [
        alerts(**{**NOTHING, "unplanned": Unplanned(changes=1, waiting_seconds=s)})[0].severity
        for s in (30.0, 90.0)
    ]
    assert severities == ["warning", "urgent"]


def test_what_others_may_follow_from_comes_before_them() -> None:
    silent = PartHealth(part="crew-7", kind="client", state="stale", seconds_ago=40.0)
    texts = said(parts=[silent], late=[late(predicted=True)])
    assert texts[0] == "crew-7 is silent: it is not known what reaches it"


def test_a_class_much_slower_than_predicted() -> None:
    given: dict[str, Any] = {
        "priority": 2,
        "subscriptions": 3,
        "offered_events_per_second": 10.0,
        "predicted_delay_mean_seconds": 0.2,
        "predicted_delay_p95_seconds": 0.4,
        "predicted_success_rate": 1.0,
    }
    slow = ClassNow(**given, delay_mean_seconds=0.9)
    assert said(classes=[slow]) == ["class 2 takes 0.9 s on average, 0.2 s was predicted"]
    assert said(classes=[ClassNow(**given, delay_mean_seconds=0.5)]) == []
    assert said(classes=[ClassNow(**given)]) == []


def test_words() -> None:
    assert [seconds_text(s) for s in (0.0123, 1.2, 42.0, 600.0, 7200.0)] == [
        "12 ms",
        "1.2 s",
        "42 s",
        "10 min",
        "2 h",
    ]
    assert [loss_text(share) for share in (0.5, 0.26, 0.6, 1.0)] == [
        "half",
        "a quarter of",
        "60 % of",
        "all",
    ]
    assert [rate_text(rate) for rate in (45.2, 0.5, 1.0)] == [
        "45 events a second",
        "0.5 events a second",
        "1 event a second",
    ]
    assert [filter_words(name) for name in ("floor/7/smoke", "floor/+/heat/#", "#")] == [
        "floor 7 smoke",
        "floor any heat all",
        "all",
    ]


# -- no false all-clear ----------------------------------------------------------------------------


def unheard(kind: Any, part: str | None = None, detail: str | None = None) -> PartHealth:
    return PartHealth(part=part or kind, kind=kind, state="unknown", detail=detail)


def test_parts_that_were_never_heard_of_are_said() -> None:
    assert said(parts=[unheard("broker"), unheard("gateway"), unheard("controller")]) == [
        "broker has never been heard of",
        "gateway has never been heard of",
        "controller has never been heard of",
    ]
    assert said(parts=[unheard("controller", detail="none is set")]) == ["controller: none is set"]
    clients = [unheard("client", f"crew-{n}") for n in range(3)]
    assert said(parts=clients) == [
        "crew-0 and 2 more have never been heard of: it is not known what reaches them"
    ]
    assert said() == [], "what is known and well needs no words"


def test_nothing_measured_and_nothing_planned_are_said() -> None:
    assert said(deliveries=None) == ["no plan is in force yet"]
    yet = Deliveries(measured=False, predicted_per_second=10.0, window_seconds=30.0)
    assert said(deliveries=yet) == ["nothing has been measured under this plan yet"]
    none = Deliveries(measured=False, predicted_per_second=0.0, window_seconds=30.0)
    assert said(deliveries=none) == ["nothing is expected: nobody publishes what is wanted"]


def silence(flow: int, expected: float, **changes: Any) -> Silence:
    given: dict[str, Any] = {
        "subscriber": "crew-1",
        "filter": "floor/7/smoke",
        "flow": flow,
        "priority": flow,
        "worth": 1.0,
        "offered_per_second": expected,
        "expected_per_second": expected,
        "of_class": True,
    }
    return Silence(**{**given, **changes})


GIVEN: dict[str, Any] = {"predicted_per_second": 25.1, "window_seconds": 30.0}


def test_what_does_not_come_is_said_by_class() -> None:
    silent = [silence(0, 5.0), silence(1, 20.0)]
    some = Deliveries(measured=True, silent=silent[1:], **GIVEN)
    assert said(deliveries=some) == [
        "nothing of class 1 reaches crew-1: 20 events a second were predicted"
    ]
    all_of_it = Deliveries(measured=False, silent=silent, all_silent=True, **GIVEN)
    assert said(deliveries=all_of_it) == [
        "nothing is delivered to anybody: 25 events a second were predicted, "
        "none was reported for 30 s"
    ]
    short = [
        ShortFlow(subscriber="crew-1", priority=n, success_rate=0.2, predicted_success_rate=share)
        for n, share in enumerate((1.0, 0.5))
    ]
    assert said(deliveries=Deliveries(measured=True, short=short, **GIVEN)) == [
        "only 20 % of class 0 reaches crew-1: 100 % was predicted",
        "only 20 % of class 1 reaches crew-1: 50 % was predicted",
    ]


def test_what_does_not_come_is_said_by_its_filter_or_topic_where_the_rest_does() -> None:
    silent = [
        silence(0, 4.0, of_class=False),
        silence(0, 4.0, of_class=False, subscriber="crew-2"),
        silence(0, 1.0, of_class=False, filter="heat/#", topics=("heat/5",), part=0.5),
    ]
    assert said(deliveries=Deliveries(measured=True, silent=silent, **GIVEN)) == [
        "nothing of floor 7 smoke reaches crew-1 and 1 more: 8 events a second were predicted",
        "nothing of heat 5 reaches crew-1: 1 event a second was predicted",
    ]


def test_what_brings_nothing_is_not_said_twice() -> None:
    never = late(subscriber="crew-1", late_by_seconds=None, delay_p95_seconds=None)
    by_filter = Deliveries(measured=True, silent=[silence(0, 4.0, of_class=False)], **GIVEN)
    assert said(deliveries=by_filter, late=[never]) == [
        "nothing of floor 7 smoke reaches crew-1: 4 events a second were predicted"
    ]
    by_class = Deliveries(measured=True, silent=[silence(0, 4.0)], **GIVEN)
    assert said(deliveries=by_class, late=[never]) == [
        "nothing of class 0 reaches crew-1: 4 events a second were predicted",
        "floor 7 smoke does not arrive for crew-1",
    ]


def quiet(topic: str, counted: float = 0.0, *, urgent: bool = True) -> Unpublished:
    found = QuietTopic(topic=topic, declared_per_second=10.0, counted_per_second=counted)
    return Unpublished(topic=found, urgent=urgent)


def test_what_is_declared_and_no_longer_published_is_said() -> None:
    those = [quiet("floor/7/heat", 0.2, urgent=False), quiet("floor/7/smoke")]
    found = Deliveries(measured=True, unpublished=those, **GIVEN)
    assert said(deliveries=found) == [
        "floor 7 smoke is no longer published: 10 events a second are declared",
        "floor 7 heat is no longer published: 10 events a second are declared, "
        "0.2 events a second counted",
    ]
    assert [a.severity for a in alerts(**{**NOTHING, "deliveries": found})] == ["urgent", "warning"]
    many = [quiet(f"floor/{n}/smoke") for n in range(7)]
    texts = said(deliveries=Deliveries(measured=True, unpublished=many, **GIVEN))
    assert (len(texts), texts[-1]) == (6, "2 more topics are no longer published")
