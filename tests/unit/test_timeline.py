"""A scenario's timeline: what it may say, and what is refused by name."""

from typing import Any

import pytest
from small_site import site

from firedex.wire import InvalidValue, Scenario, format_path, from_plain, to_plain


def with_timeline(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**site(), **more, "timeline": list(events)}


def problems(data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidValue) as refused:
        from_plain(Scenario, data)
    return {format_path(problem.path): problem.message for problem in refused.value.problems}


def someone() -> str:
    return str(site()["subscribers"][0]["id"])


def test_a_timeline_comes_back_as_it_was() -> None:
    data = site()
    switch = data["network"]["switches"][-1]["id"]
    publisher = data["publishers"][0]
    scenario = from_plain(
        Scenario,
        with_timeline(
            {"kind": "leave", "at_seconds": 1, "subscriber": someone()},
            {"kind": "join", "at_seconds": 2.5, "subscriber": someone()},
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
    ("event", "where", "said"),
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
def test_what_refers_to_nothing_is_refused(event: dict[str, Any], where: str, said: str) -> None:
    found = problems(with_timeline({"at_seconds": 1, **event}))
    assert any(said in message for message in found.values()), found
    assert any(path.startswith(where.partition(".kill")[0]) for path in found), found


def test_a_link_that_is_not_there_cannot_fail() -> None:
    switches = [switch["id"] for switch in site()["network"]["switches"]]
    event = {"kind": "link", "at_seconds": 1, "from": switches[0], "to": switches[0], "up": False}
    assert problems(with_timeline(event)) == {
        "timeline[0]": "there is no such link in 'network.links'"
    }


def test_nobody_comes_who_is_there() -> None:
    come = {"kind": "join", "subscriber": someone()}
    found = problems(with_timeline({**come, "at_seconds": 1}, {**come, "at_seconds": 2}))
    assert found == {"timeline[1].subscriber": f"{someone()!r} is there already at that time"}
    go = {"kind": "leave", "subscriber": someone()}
    found = problems(with_timeline({**go, "at_seconds": 2}, {**go, "at_seconds": 1}))
    assert found == {"timeline[0].subscriber": f"{someone()!r} is not there at that time"}


def test_a_surge_is_of_what_is_published() -> None:
    publisher = site()["publishers"][0]["id"]
    event = {"kind": "surge", "at_seconds": 1, "factor": 2, "for_seconds": 1}
    found = problems(with_timeline({**event, "publisher": publisher, "topic": "no/such"}))
    assert "does not publish 'no/such'" in found["timeline[0].topic"]
