"""The timeline of a scenario: round trip, and rejection of impossible events."""

from typing import Any

import pytest

from firedex.wire import InvalidValue, Scenario, format_path, from_plain, to_plain
from tests.support.small_site import site


def site_with_timeline(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**site(), **more, "timeline": list(events)}


def problems(data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidValue) as caught:
        from_plain(Scenario, data)
    return {format_path(problem.path): problem.message for problem in caught.value.problems}


def subscriber_id() -> str:
    return str(site()["subscribers"][0]["id"])


def test_timeline_round_trips_through_plain_data() -> None:
    data = site()
    switch = data["network"]["switches"][-1]["id"]
    publisher = data["publishers"][0]
    scenario = from_plain(
        Scenario,
        site_with_timeline(
            {"kind": "leave", "at_seconds": 1, "subscriber": subscriber_id()},
            {"kind": "join", "at_seconds": 2.5, "subscriber": subscriber_id()},
            {"kind": "phase", "at_seconds": 3, "phase": "suppression"},
            {
                "kind": "bandwidth",
                "at_seconds": 4,
                "switch": switch,
                "bandwidth_bits_per_second": 1e5,
            },
            {
                "kind": "surge",
                "at_seconds": 5,
                "publisher": publisher["id"],
                "topic": publisher["publications"][0]["topic"],
                "factor": 3,
                "for_seconds": 2,
            },
            {"kind": "kill", "at_seconds": 6, "part": "gateway"},
            phases=[{"phase": "suppression", "rules": [{"filter": "#", "factor": 2.0}]}],
        ),
    )
    assert from_plain(Scenario, to_plain(scenario)) == scenario
    assert [event.kind for event in scenario.timeline] == [
        "leave", "join", "phase", "bandwidth", "surge", "kill",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("event", "path", "expected"),
    [
        ({"kind": "join", "subscriber": "nobody"}, "timeline[0].subscriber", "unknown subscriber"),
        ({"kind": "phase", "phase": "tea"}, "timeline[0].phase", "unknown phase 'tea'"),
        (
            {"kind": "bandwidth", "switch": "attic", "bandwidth_bits_per_second": 1},
            "timeline[0].switch",
            "unknown switch 'attic'",
        ),
        (
            {"kind": "surge", "publisher": "nobody", "factor": 2, "for_seconds": 1},
            "timeline[0].publisher",
            "unknown publisher",
        ),
        ({"kind": "kill", "part": "reactor"}, "timeline[0].kill.part", "'broker'"),
        ({"kind": "explode"}, "timeline[0]", "explode"),
    ],
)
def test_unknown_reference_is_rejected(event: dict[str, Any], path: str, expected: str) -> None:
    reported = problems(site_with_timeline({"at_seconds": 1, **event}))
    assert any(expected in message for message in reported.values()), reported
    assert any(at.startswith(path.partition(".kill")[0]) for at in reported), reported


def test_event_of_unknown_link_is_rejected() -> None:
    switches = [switch["id"] for switch in site()["network"]["switches"]]
    event = {"kind": "link", "at_seconds": 1, "from": switches[0], "to": switches[0], "up": False}
    assert problems(site_with_timeline(event)) == {
        "timeline[0]": "this link is not in 'network.links'"
    }


def test_join_of_present_and_leave_of_absent_subscriber_are_rejected() -> None:
    join = {"kind": "join", "subscriber": subscriber_id()}
    reported = problems(site_with_timeline({**join, "at_seconds": 1}, {**join, "at_seconds": 2}))
    assert reported == {
        "timeline[1].subscriber": f"{subscriber_id()!r} is already present at that time"
    }
    leave = {"kind": "leave", "subscriber": subscriber_id()}
    reported = problems(site_with_timeline({**leave, "at_seconds": 2}, {**leave, "at_seconds": 1}))
    assert reported == {
        "timeline[0].subscriber": f"{subscriber_id()!r} is not present at that time"
    }


def test_surge_of_unpublished_topic_is_rejected() -> None:
    publisher = site()["publishers"][0]["id"]
    event = {"kind": "surge", "at_seconds": 1, "factor": 2, "for_seconds": 1}
    reported = problems(site_with_timeline({**event, "publisher": publisher, "topic": "no/such"}))
    assert "does not publish 'no/such'" in reported["timeline[0].topic"]
