"""A topic that dies while another shares its connection, and one that is not published. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from math import log

import pytest
from test_deliveries import NOW, look, plan, report, site_view

from firedex.dashboard.last_heard import LastHeard
from firedex.dashboard.quiet_topics import CountedRate, QuietTopic, QuietTopics
from firedex.dashboard.site_view import SiteView
from firedex.wire import Statistics

BOTH = {"smoke/1": 10.0, "heat/1": 4.0}


def shared(wants: Sequence[str]) -> tuple[SiteView, Statistics]:
    """All in one flow, of which heat comes."""
    view = site_view("crew", rates=BOTH, wants=wants, flows=1)
    ((_, flow),) = {(row.subscriber, row.flow) for row in view.prediction.subscriptions}
    return view, report("crew", flow, "heat/1")


def test_a_dead_topic_is_told_while_another_shares_its_flow() -> None:
    view, heat = shared(["smoke/#", "heat/#"])
    seen = look(view, {"crew": 0.5}, [heat])
    assert [(one.filter, one.topics) for one in seen.silent] == [("smoke/#", ())]
    assert seen.alerts[0].text == (
        "nothing of smoke all reaches crew: 10 events a second were predicted"
    )
    assert [(one.filter, one.late_by_seconds) for one in seen.late] == [("smoke/#", None)]
    assert seen.utility is not None
    assert seen.utility.measured == pytest.approx(0.5)


def test_a_dead_topic_is_told_while_a_wildcard_brings_others() -> None:
    view, heat = shared(["#"])
    seen = look(view, {"crew": 0.5}, [heat])
    assert [(one.filter, one.topics) for one in seen.silent] == [("#", ("smoke/1",))]
    assert seen.alerts[0].text == (
        "nothing of smoke 1 reaches crew: 10 events a second were predicted"
    )
    assert seen.late == (), "something comes, and in time"
    assert seen.utility is not None
    assert seen.utility.measured == pytest.approx(log(1 + 4 / 14) / log(2))


def test_a_topic_that_is_new_to_a_filter_is_waited_for() -> None:
    view, heard = site_view("crew", rates=BOTH, wants=["#"]), LastHeard()
    before = {topic: rate for topic, rate in view.published.items() if topic != "smoke/1"}
    heard.plan(view.prediction.subscriptions, before, NOW)
    plan(heard, view, NOW + 1000)
    assert heard.silent_seconds("crew", "#", "smoke/1", NOW + 1010) == 10.0
    assert heard.silent_seconds("crew", "#", "heat/1", NOW + 1010) == 1010.0


def counted(per_second: float, seconds: float = 60.0) -> CountedRate:
    return CountedRate(per_second=per_second, seconds=seconds)


def test_declared_topics_that_are_not_published_are_quiet() -> None:
    topics = QuietTopics()
    declared = {"smoke/1": 10.0, "heat/1": 0.01, "gas/1": 5.0, "new/1": 1.0, "none/1": 0.0}
    seen = {"smoke/1": counted(0.2), "heat/1": counted(0.0), "gas/1": counted(4.0)}
    quiet = lambda at: [each.topic for each in topics.now(declared, seen, at)]  # noqa: E731
    assert quiet(NOW) == ["smoke/1"]
    assert quiet(NOW + 900) == ["smoke/1"]
    assert quiet(NOW + 950) == ["smoke/1", "heat/1"], "slow ones are told later"
    seen["heat/1"] = counted(1 / 60)
    assert quiet(NOW + 960) == ["smoke/1"]
    seen["heat/1"] = counted(0.0)
    assert quiet(NOW + 970) == ["smoke/1"], "it was heard meanwhile"


def test_what_is_not_published_is_urgent_by_what_it_is_worth() -> None:
    view = site_view("crew", rates=BOTH)
    quiet = [
        QuietTopic(topic=topic, declared_per_second=1.0, counted_per_second=0.0)
        for topic in ("smoke/1", "heat/1", "unwanted/1")
    ]
    rows = tuple(
        replace(row, maximum_utility=row.maximum_utility * (0.1 if row.filter == "heat/#" else 1))
        for row in view.prediction.subscriptions
    )
    view = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    found = {one.topic.topic: one.urgent for one in view.unpublished(quiet)}
    assert found == {"smoke/1": True, "heat/1": False}


def test_what_is_not_published_is_worth_nothing_though_its_flow_brings_other_things() -> None:
    """A plan that counts with what is measured expects none of it."""
    view, heat = shared(["smoke/#", "heat/#"])
    rows = tuple(
        replace(row, offered_events_per_second=0.0) if row.filter == "smoke/#" else row
        for row in view.prediction.subscriptions
    )
    view = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    quiet = [QuietTopic(topic="smoke/1", declared_per_second=10.0, counted_per_second=0.0)]
    seen = look(view, {"crew": 0.5}, [heat], quiet=quiet)
    assert [(one.filter, one.topics) for one in seen.silent] == [("smoke/#", ())]
    assert seen.utility is not None
    assert seen.utility.measured == pytest.approx(0.5)
    assert [(one.filter, one.late_by_seconds) for one in seen.late] == [("smoke/#", None)]
    assert [alert.text for alert in seen.alerts][:2] == [
        "smoke 1 is no longer published: 10 events a second are declared",
        "smoke all does not arrive for crew",
    ]
    off = look(view, {"crew": 20.0}, [heat], quiet=quiet)
    assert off.silent == off.late == (), "who is off says nothing"
