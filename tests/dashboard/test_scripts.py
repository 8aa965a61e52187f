"""What the scripts compute, without a service: words, times, tables, the drawing of a network."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

import firedex.dashboard

pytestmark = pytest.mark.xdist_group("browser")
ASSETS = Path(firedex.dashboard.__file__).parent / "assets"
ZONES = {"UTC": "14:02:05", "America/Los_Angeles": "06:02:05", "Asia/Kolkata": "19:32:05"}
MOMENT = "2026-03-01T14:02:05Z"


@pytest.fixture
def page(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    browser.get("about:blank")
    for script in sorted(ASSETS.glob("*.js"))[:-1]:  # the last one is what people do
        browser.execute_script(script.read_text("utf-8"))
    yield browser
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def computed(page: webdriver.Chrome, name: str, *given: Any) -> Any:
    return page.execute_script(f"return firedex.{name}(...arguments);", *given)


@pytest.mark.parametrize(("zone", "clock"), ZONES.items())
def test_times_are_the_viewer_s(page: webdriver.Chrome, zone: str, clock: str) -> None:
    page.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
    assert computed(page, "zone") in (zone, "Asia/Calcutta")
    assert computed(page, "local", MOMENT) == f"2026-03-01 {clock}"
    today = "return firedex.clock(arguments[0], new Date(arguments[1]));"
    assert page.execute_script(today, MOMENT, "2026-03-01T15:00:00Z") == clock
    assert page.execute_script(today, MOMENT, "2026-03-03T15:00:00Z") == f"1 Mar {clock}"


def test_a_time_of_day_is_the_last_one(page: webdriver.Chrome) -> None:
    page.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "America/Los_Angeles"})
    last = "return firedex.lastTime(arguments[0], new Date(arguments[1]))?.toISOString() ?? null;"
    at = lambda text: page.execute_script(last, text, "2026-03-01T20:00:00Z")  # noqa: E731
    assert at("11:30") == "2026-03-01T19:30:59.000Z"
    assert at("12:30") == "2026-02-28T20:30:59.000Z", "later than now: yesterday's"
    assert [at(text) for text in ("", "25:00", "noon")] == [None, None, None]


def test_no_cell_is_a_formula_to_a_spreadsheet(page: webdriver.Chrome) -> None:
    for text in ("=1+1", "+/smoke", "-2", "@x", "\tx", " =1", "\rx"):
        assert computed(page, "csvCell", text) == f'"\'{text}"'
    assert computed(page, "csvCell", -2.5) == "-2.5", "a number stays one"
    assert computed(page, "csvCell", 'say "a,b"') == '"say ""a,b"""'
    assert computed(page, "csvCell", None) == ""
    rows = [{"filter": "+/#", "p95": 0.1}, {"filter": "a/b", "p95": None}]
    assert computed(page, "csv", ["filter", "p95"], rows) == (
        'filter,p95\r\n"\'+/#",0.1\r\na/b,\r\n'
    )


def network(*links: tuple[str, str], broker: str | None) -> dict[str, Any]:
    names = sorted({end for link in links for end in link})
    return {
        "switches": [{"id": name} for name in names],
        "links": [{"from": here, "to": there} for here, there in links],
        "broker": {"id": "edge", "switch": broker},
    }


@pytest.mark.parametrize(
    "links",
    [[("s", "s1"), ("s1", "s10")], [("s1", "s"), ("s10", "s1")], [("s", "s1"), ("s10", "s1")]],
)
def test_links_are_drawn_away_from_the_broker_however_they_are_given(
    page: webdriver.Chrome, links: list[tuple[str, str]]
) -> None:
    """Names that begin like others are others."""
    found = computed(page, "tree", network(*links, broker="s"))
    assert found == {"roots": ["s"], "below": {"s": ["s1"], "s1": ["s10"], "s10": []}}
    places = [{"subscriber": "s1", "switch": "s10"}, {"subscriber": "broker", "switch": "s1"}]
    loads = {"s": {"s1": 0.4}, "s1": {"s10": 0.9, "s": 0.1}, "s10": {"": 1.2}}
    drawn = computed(page, "drawing", network(*links, broker="s"), places, loads)
    nodes = {each["data"]["id"]: each for each in drawn if "position" in each}
    edges = {
        (e["data"]["source"], e["data"]["target"]): e["data"]
        for e in drawn
        if e["data"].get("source")
    }
    assert len(nodes) == 6, json.dumps(sorted(nodes))
    depths = [
        nodes[name]["position"]["y"] for name in ("broker", "switch s", "switch s1", "switch s10")
    ]
    assert depths == sorted(set(depths)), "each below the one before"
    assert edges["switch s", "switch s1"]["label"] == "40 %"
    assert edges["switch s1", "switch s"]["label"] == "10 %", "both directions"
    assert edges["switch s1", "switch s10"]["label"] == "90 %"
    assert ("switch s10", "switch s1") not in edges
    assert ("broker", "switch s") in edges
    assert ("switch s10", "host s1") in edges


def test_without_the_broker_s_switch_links_lead_away(page: webdriver.Chrome) -> None:
    found = computed(page, "tree", network(("a", "b"), ("b", "c"), broker=None))
    assert found["roots"] == ["a"]
    loop = computed(page, "tree", network(("a", "b"), ("b", "a"), broker=None))
    assert sorted([*loop["roots"], *loop["below"]["a"], *loop["below"]["b"]]) == ["a", "b"]


def test_a_utility_is_what_its_inputs_say(page: webdriver.Chrome) -> None:
    made = lambda **given: computed(page, "utilityOf", given)  # noqa: E731
    assert made(kind="log", weight=3, shape="0.5") == {"kind": "log", "weight": 3}
    assert made(kind="capped", weight=3, shape="0.5") == {
        "kind": "capped",
        "weight": 3,
        "enough": 0.5,
    }
    assert made(kind="power", weight=3, shape=0.5) == {
        "kind": "power",
        "weight": 3,
        "exponent": 0.5,
    }
    assert made(kind="piecewise-linear", weight=1, shape="0:0, 0.5:0.8, 1:1")["points"] == [
        [0, 0],
        [0.5, 0.8],
        [1, 1],
    ]
    refused = "try { firedex.utilityOf(arguments[0]); } catch (error) { return error.message; }"
    for wrong in ({"kind": "log", "weight": ""}, {"kind": "capped", "weight": 1, "shape": "2"}):
        assert page.execute_script(refused, wrong)
