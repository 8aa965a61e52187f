"""Topics that fall silent while others share their flow, and topics without events. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from math import log

import pytest

from firedex.dashboard.delivery_gaps import CountedRate, LastDeliveries, SilentTopic, SilentTopics
from firedex.dashboard.site_view import SiteView
from firedex.wire import Statistics
from tests.dashboard.test_delivery_gaps import NOW, overview_of, plan, report, site_view

TWO_RATES = {"smoke/1": 10.0, "heat/1": 4.0}


def view_with_one_flow(filters: Sequence[str]) -> tuple[SiteView, Statistics]:
    """Return a view with all filters in one flow, and a report with heat only."""
    view = site_view("crew", rates=TWO_RATES, filters=filters, flows=1)
    ((_, flow),) = {(row.subscriber, row.flow) for row in view.prediction.subscriptions}
    return view, report("crew", flow, "heat/1")


def test_silent_topic_is_reported_while_its_flow_delivers_others() -> None:
    view, heat = view_with_one_flow(["smoke/#", "heat/#"])
    site = overview_of(view, {"crew": 0.5}, [heat])
    assert [(one.filter, one.topics) for one in site.silent] == [("smoke/#", ())]
    assert site.alerts[0].text == (
        "crew receives no events of smoke all: 10 events per second were predicted"
    )
    assert [(one.filter, one.late_by_seconds) for one in site.late] == [("smoke/#", None)]
    assert site.utility is not None
    assert site.utility.measured == pytest.approx(0.5)


def test_silent_topic_is_reported_while_its_filter_delivers_others() -> None:
    view, heat = view_with_one_flow(["#"])
    site = overview_of(view, {"crew": 0.5}, [heat])
    assert [(one.filter, one.topics) for one in site.silent] == [("#", ("smoke/1",))]
    assert site.alerts[0].text == (
        "crew receives no events of smoke 1: 10 events per second were predicted"
    )
    assert site.late == (), "other topics arrive in time"
    assert site.utility is not None
    assert site.utility.measured == pytest.approx(log(1 + 4 / 14) / log(2))


def test_silence_of_a_new_topic_starts_with_its_plan() -> None:
    view, last_deliveries = site_view("crew", rates=TWO_RATES, filters=["#"]), LastDeliveries()
    before = {topic: rate for topic, rate in view.topic_rates.items() if topic != "smoke/1"}
    last_deliveries.plan(view.prediction.subscriptions, before, NOW)
    plan(last_deliveries, view, NOW + 1000)
    assert last_deliveries.silent_seconds("crew", "#", "smoke/1", NOW + 1010) == 10.0
    assert last_deliveries.silent_seconds("crew", "#", "heat/1", NOW + 1010) == 1010.0


def counted_rate(per_second: float, seconds: float = 60.0) -> CountedRate:
    return CountedRate(per_second=per_second, seconds=seconds)


def test_declared_topics_without_events_are_silent() -> None:
    topics = SilentTopics()
    declared = {"smoke/1": 10.0, "heat/1": 0.01, "gas/1": 5.0, "new/1": 1.0, "none/1": 0.0}
    site = {"smoke/1": counted_rate(0.2), "heat/1": counted_rate(0.0), "gas/1": counted_rate(4.0)}
    silent_topics = lambda at: [each.topic for each in topics.update(declared, site, at)]  # noqa: E731
    assert silent_topics(NOW) == ["smoke/1"]
    assert silent_topics(NOW + 900) == ["smoke/1"]
    assert silent_topics(NOW + 950) == ["smoke/1", "heat/1"], "a slow topic needs more time"
    site["heat/1"] = counted_rate(1 / 60)
    assert silent_topics(NOW + 960) == ["smoke/1"]
    site["heat/1"] = counted_rate(0.0)
    assert silent_topics(NOW + 970) == ["smoke/1"], "the silence was interrupted"


def test_silent_topic_with_high_utility_is_urgent() -> None:
    view = site_view("crew", rates=TWO_RATES)
    silent_topics = [
        SilentTopic(topic=topic, declared_per_second=1.0, counted_per_second=0.0)
        for topic in ("smoke/1", "heat/1", "unwanted/1")
    ]
    rows = tuple(
        replace(row, maximum_utility=row.maximum_utility * (0.1 if row.filter == "heat/#" else 1))
        for row in view.prediction.subscriptions
    )
    view = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    found = {one.topic.topic: one.urgent for one in view.unpublished_topics(silent_topics)}
    assert found == {"smoke/1": True, "heat/1": False}


def test_silent_topic_has_no_utility_while_its_flow_delivers_others() -> None:
    """A plan with measured rates expects no events of the topic."""
    view, heat = view_with_one_flow(["smoke/#", "heat/#"])
    rows = tuple(
        replace(row, offered_events_per_second=0.0) if row.filter == "smoke/#" else row
        for row in view.prediction.subscriptions
    )
    view = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    silent_topics = [SilentTopic(topic="smoke/1", declared_per_second=10.0, counted_per_second=0.0)]
    site = overview_of(view, {"crew": 0.5}, [heat], silent_topics=silent_topics)
    assert [(one.filter, one.topics) for one in site.silent] == [("smoke/#", ())]
    assert site.utility is not None
    assert site.utility.measured == pytest.approx(0.5)
    assert [(one.filter, one.late_by_seconds) for one in site.late] == [("smoke/#", None)]
    assert [alert.text for alert in site.alerts][:2] == [
        "smoke 1 is no longer published: 10 events per second are declared",
        "smoke all does not arrive for crew",
    ]
    offline = overview_of(view, {"crew": 20.0}, [heat], silent_topics=silent_topics)
    assert offline.silent == offline.late == (), "a client without heartbeats is skipped"
