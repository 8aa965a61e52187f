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


def used(share: float, *, planned: bool = False) -> dict[str, Any]:
    return {"used": share, "planned": planned}


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
    loads = {"s": {"s1": used(0.4)}, "s1": {"s10": used(0.9), "s": used(0.1)}}
    loads["s10"] = {"": used(1.2)}
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


def test_what_is_only_planned_and_what_is_not_well_is_drawn_so(page: webdriver.Chrome) -> None:
    page.execute_script(
        "document.documentElement.style.cssText = '--bad: red; --soft: grey; --good: green;';"
    )
    loads = {"a": {"b": used(0.4, planned=True)}, "b": {"": used(0.3), "c": used(2, planned=True)}}
    given = network(("a", "b"), ("b", "c"), broker="a")
    drawn = computed(page, "drawing", given, [], loads, {"c": "not connected"})
    data = {each["data"]["id"]: each["data"] for each in drawn}
    link = data["switch a > switch b"]
    assert (link["label"], link["colour"], link["line"]) == ("40 % planned", "grey", "dashed")
    look = lambda name: (data[f"switch {name}"]["label"], data[f"switch {name}"]["colour"])  # noqa: E731
    assert look("a") == ("a  40 % planned", "grey")
    assert look("b") == ("b  30 %", "green"), "what is counted is what colours it"
    assert look("c") == ("c: not connected", "red")


@pytest.mark.parametrize(
    ("state", "detail", "words"),
    [
        ("trouble", "refused", "the controller does not answer"),
        ("well", None, "the controller does not know it"),
        ("unknown", None, "the controller has not answered yet"),
        ("unknown", "none is set", "no controller"),
    ],
)
def test_why_nobody_says_how_a_switch_is(
    page: webdriver.Chrome, state: str, detail: str | None, words: str
) -> None:
    part = {"part": "controller", "kind": "controller", "state": state, "detail": detail}
    assert computed(page, "untold", [part]) == words


@pytest.mark.parametrize(
    ("p95", "met", "silent", "late"),
    [
        (1.0, False, True, False),
        (3.0, True, False, True),
        (None, True, False, False),
        (None, False, False, True),
        (None, True, True, True),
    ],
)
def test_late_is_what_the_first_page_calls_so(
    page: webdriver.Chrome, p95: float | None, met: bool, silent: bool, late: bool
) -> None:
    one = {"deadline_seconds": 2, "delay_p95_seconds": p95, "deadline_met": met, "silent": silent}
    assert computed(page, "isLate", one) is late
    assert computed(page, "isLate", {**one, "deadline_seconds": None}) is False


def test_utility_is_said_with_how_much_of_it_is_measured(page: webdriver.Chrome) -> None:
    of = lambda count: {"measured_subscriptions": count, "subscriptions": 40}  # noqa: E731
    assert computed(page, "worth", 0.5, 0.9, of(30)) == [
        "50 %",
        "measured of 30 of 40 subscriptions; predicted 90 %",
    ]
    assert computed(page, "worth", 0.5, 0.9, of(3)) == [
        "90 %",
        "predicted; measured 50 % of 3 of 40 subscriptions",
    ]
    assert computed(page, "worth", None, 0.9, None)[0] == "90 %"


@pytest.mark.parametrize(
    ("late", "severities", "version", "look", "words"),
    [
        (1, ["urgent"], 3, "bad", "1 subscription misses its deadline"),
        (2, [], 3, "bad", "2 subscriptions miss their deadline"),
        (0, ["note", "urgent", "warning"], 3, "bad", "1 urgent alert"),
        (0, ["warning", "note", "warning"], 3, "warn", "2 warnings"),
        (0, ["note"], 3, "unknown", "Not all is known: 1 note"),
        (0, [], 0, "unknown", "Not known: no plan is in force"),
        (0, [], 3, "good", "All is well"),
    ],
)
def test_the_site_in_one_sentence(
    page: webdriver.Chrome, late: int, severities: list[str], version: int, look: str, words: str
) -> None:
    alerts = [{"severity": each, "text": "…"} for each in severities]
    now = {"version": version, "late_in_all": late, "alerts": alerts}
    assert computed(page, "verdict", now) == [look, words]


def test_what_an_answer_holds_for(page: webdriver.Chrome) -> None:
    def seen(version: int, since: str, closed: str | None = None) -> dict[str, Any]:
        return {"version": version, "incident": {"phase_since": since, "closed_at": closed}}

    then = seen(3, "14:02")
    why = lambda now: computed(page, "whyExpired", then, now)  # noqa: E731
    assert why(seen(3, "14:02")) == ""
    assert why(seen(4, "14:02")) == "Plan 4 has come into force since"
    for other in (seen(3, "14:03"), seen(3, "14:02", "14:04"), {"version": 3, "incident": None}):
        assert why(other) == "The incident or its phase has changed since"


def test_utility_in_time_is_by_the_rule_of_the_first_page(page: webdriver.Chrome) -> None:
    rows = [{"utility": 3, "deadline_met": met} for met in (True, False, None)]
    found = computed(page, "timelyShare", {"subscriptions": rows, "maximum_utility": 12})
    assert found == 0.5


SHOWN = """
    const done = arguments[arguments.length - 1], shown = { asked: [] };
    const storage = { value: { getItem: () => "" }, configurable: true };
    Object.defineProperty(window, "sessionStorage", storage);
    window.dash_clientside = { set_props: (id, given) => Object.assign(shown, { [id]: given }) };
    window.fetch = async (path) => {
      shown.asked.push(path);
      return new Response('{"flows": [], "subscriptions": []}');
    };
    firedex.state.records = arguments[0];
    firedex.showDifference(arguments[0][0]).then(() => done(shown), (error) => done(String(error)));
"""


def test_a_plan_that_failed_says_why_and_is_compared_with_nothing(page: webdriver.Chrome) -> None:
    def record(version: int, state: str, at: str | None, error: str | None = None) -> Any:
        given = {"version": version, "state": state, "in_force_at": at, "error": error}
        return {**given, "reason": "a new crew"}

    failed = record(4, "failed", None, "503 core is away")
    shown = page.execute_async_script(SHOWN, [failed, record(3, "in-force", "14:02")])
    assert shown["asked"] == []
    assert "503 core is away" in shown["difference"]["children"]["props"]["children"]
    records = [record(5, "in-force", "14:05"), failed, record(3, "planned", None)]
    shown = page.execute_async_script(SHOWN, [*records, record(2, "replaced", "14:01")])
    assert shown["asked"] == ["/v1/configurations/2/difference/5"]


def test_without_the_broker_s_switch_links_lead_away(page: webdriver.Chrome) -> None:
    found = computed(page, "tree", network(("a", "b"), ("b", "c"), broker=None))
    assert found["roots"] == ["a"]
    loop = computed(page, "tree", network(("a", "b"), ("b", "a"), broker=None))
    assert sorted([*loop["roots"], *loop["below"]["a"], *loop["below"]["b"]]) == ["a", "b"]


def test_where_publishers_are_is_drawn_before_the_broker(page: webdriver.Chrome) -> None:
    given = network(("core", "roof"), broker="core")
    given["switches"].append({"id": "lan", "managed": False})
    drawn = computed(page, "drawing", given, [], {})
    y = {each["data"]["id"]: each["position"]["y"] for each in drawn if "position" in each}
    assert y["switch lan"] < y["broker"] < y["switch core"] < y["switch roof"]
    edges = [(e["data"]["source"], e["data"]["target"]) for e in drawn if e["data"].get("source")]
    assert ("switch lan", "broker") in edges
    assert ("broker", "switch lan") not in edges
    there = [{"subscriber": "crew", "switch": "lan"}]
    drawn = computed(page, "drawing", given, there, {})
    y = {each["data"]["id"]: each["position"]["y"] for each in drawn if "position" in each}
    assert y["broker"] < y["switch lan"] < y["host crew"], "somebody is reached through it"


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
    for field, wrong in (
        ("Weight", {"kind": "log", "weight": ""}),
        ("Weight", {"kind": "log", "weight": "-3"}),
        ("Weight", {"kind": "log", "weight": "many"}),
        ("Shape", {"kind": "capped", "weight": 1, "shape": "2"}),
        ("Shape", {"kind": "power", "weight": 1, "shape": ""}),
        ("Shape", {"kind": "piecewise-linear", "weight": 1, "shape": "0:0, :1"}),
    ):
        assert page.execute_script(refused, wrong).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("0.4", 0.4),
        ("0,4", 0.4),
        (" 3 ", 3),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("1500", 1500),
        ("0,125", 0.125),
        *((wrong, None) for wrong in ("", "abc", "-1", "1e", "0x10", "1.2.3", "1,2,3", "1e999")),
        ("1,500", None),
    ],
)
def test_a_number_is_taken_at_its_word_or_refused(
    page: webdriver.Chrome, typed: str, meant: float | None
) -> None:
    assert computed(page, "decimal", typed) == meant


@pytest.mark.parametrize("typed", ["-1", "abc", "0", "1e", "Infinity", "NaN", "1,500"])
def test_a_deadline_that_is_none_is_refused_by_name(page: webdriver.Chrome, typed: str) -> None:
    refused = "try { firedex.deadlineOf(arguments[0]); } catch (error) { return error.message; }"
    said = page.execute_script(refused, {"deadline": typed})
    assert said.startswith("Deadline: a number of seconds above 0"), said
    assert typed in said


def test_no_deadline_is_an_empty_field_alone(page: webdriver.Chrome) -> None:
    assert [computed(page, "deadlineOf", {"deadline": each}) for each in ("", " ", None)] == [
        None,
        None,
        None,
    ]
    assert computed(page, "deadlineOf", {"deadline": "0,4"}) == 0.4


REPLAYED = """
    const done = arguments[arguments.length - 1], shown = { asked: [] }, looks = [];
    const storage = { value: { getItem: () => "" }, configurable: true };
    Object.defineProperty(window, "sessionStorage", storage);
    window.dash_clientside = { set_props: (id, given) => Object.assign((shown[id] ??= {}), given) };
    let now = 1_800_000_000;
    firedex.overview = async () => ({ version: 1, now_seconds: now });
    window.fetch = async (path) => {
      const asked = new URL(path, "http://127.0.0.1").searchParams, steps = [];
      if (!asked.has("from_seconds")) return new Response("[]");
      shown.asked.push([Number(asked.get("from_seconds")), Number(asked.get("to_seconds"))]);
      for (let at = shown.asked.at(-1)[0]; at <= shown.asked.at(-1)[1]; at += 10)
        steps.push({ at: new Date(at * 1000).toISOString(), seconds: 10, priority: 0,
          delivered_events: 1, missing_events: 0 });
      return new Response(JSON.stringify(steps));
    };
    const look = async () => {
      firedex.state.historyAt = { ticks: -1e6, date: 0 };  // long ago
      await firedex.show.history();
      const { value } = shown.moment, at = firedex.state.moments[value];
      looks.push({ value, at, label: shown["moment-label"].children, window: shown.asked.at(-1),
        marks: shown.replay.figure.layout.shapes.filter((each) => each.name === "moment")
          .map((each) => each.x0 === firedex.local(at)) });
      now += 30;
    };
    const choose = (index) => firedex.chooseMoment(index);
    (async () => {
      await look();
      await look();
      choose(20);
      await look();
      await look();
      choose(firedex.state.moments.length - 1);
      await look();
      return looks;
    })().then(done, (error) => done(String(error)));
"""


def test_a_moment_that_is_chosen_stays_and_the_last_one_is_followed(
    page: webdriver.Chrome,
) -> None:
    first, second, chosen, still, again = page.execute_async_script(REPLAYED)
    assert first["at"] < second["at"], "the last one is followed"
    assert chosen["value"] == still["value"] == 20
    assert chosen["at"] == still["at"] < second["at"]
    assert chosen["label"] == still["label"]
    assert "chosen" in still["label"]
    assert chosen["window"] == still["window"] == second["window"]
    assert again["at"] > second["at"]
    assert all(look["marks"] == [True] for look in (first, second, chosen, still, again))


def test_small_losses_are_told_apart_and_plans_are_named(page: webdriver.Chrome) -> None:
    def step(n: int, delivered: int, missing: int | None) -> dict[str, Any]:
        at = f"2026-03-01T14:0{n}:00Z"
        made = {"at": at, "seconds": 60, "priority": 0, "delay_p95_seconds": 0.02}
        rate = None if missing is None else delivered / (delivered + missing)
        counts = {"delivered_events": delivered, "missing_events": missing}
        return {**made, **counts, "success_rate": rate}

    steps = [step(0, 995, 5), step(1, 999, 1), step(2, 1000, 0), step(3, 0, 10), step(4, 10, None)]
    plans = [
        {"version": n, "in_force_at": f"2026-03-01T14:0{n}:30Z", "reason": "a new crew"}
        for n in (1, 2)
    ]
    start = 1772373600  # 14:00
    figure = computed(page, "replay", steps, plans, start, start + 600)
    _, drawn = figure["data"]
    assert drawn["yaxis"] == "y2"
    assert drawn["y"] == pytest.approx([0.005, 0.001, 0.0003, 1, None])
    assert drawn["text"][:2] == ["99.50 %", "99.90 %"]
    axis = figure["layout"]["yaxis2"]
    assert axis["type"] == "log"
    assert axis["range"][0] > axis["range"][1], "what loses less is higher up"
    names = figure["layout"]["annotations"]
    assert [each["text"] for each in names] == ["plan 1", "plan 2"]
    assert all(each["hovertext"].endswith("a new crew") for each in names)


def test_a_moment_is_found_again(page: webdriver.Chrome) -> None:
    moments = [f"2026-03-01T14:0{n}:00Z" for n in range(4)]
    assert computed(page, "nearest", moments, moments[2]) == 2
    assert computed(page, "nearest", moments, "2026-03-01T14:00:40Z") == 1
    assert computed(page, "nearest", [], moments[0]) == 0
