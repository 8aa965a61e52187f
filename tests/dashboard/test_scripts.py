"""Functions of the scripts in a browser, without a service: texts, times, tables, drawings."""

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
    for script in sorted(ASSETS.glob("*.js"))[:-1]:  # the last script needs the layout
        browser.execute_script(script.read_text("utf-8"))
    yield browser
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def call_script(page: webdriver.Chrome, name: str, *given: Any) -> Any:
    return page.execute_script(f"return firedex.{name}(...arguments);", *given)


@pytest.mark.parametrize(("zone", "clock"), ZONES.items())
def test_times_use_the_time_zone_of_the_viewer(
    page: webdriver.Chrome, zone: str, clock: str
) -> None:
    page.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
    assert call_script(page, "zone") in (zone, "Asia/Calcutta")
    assert call_script(page, "local", MOMENT) == f"2026-03-01 {clock}"
    today = "return firedex.clock(arguments[0], new Date(arguments[1]));"
    assert page.execute_script(today, MOMENT, "2026-03-01T15:00:00Z") == clock
    assert page.execute_script(today, MOMENT, "2026-03-03T15:00:00Z") == f"1 Mar {clock}"


def test_time_of_day_means_its_last_occurrence(page: webdriver.Chrome) -> None:
    page.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "America/Los_Angeles"})
    last = "return firedex.lastTime(arguments[0], new Date(arguments[1]))?.toISOString() ?? null;"
    at = lambda text: page.execute_script(last, text, "2026-03-01T20:00:00Z")  # noqa: E731
    assert at("11:30") == "2026-03-01T19:30:59.000Z"
    assert at("12:30") == "2026-02-28T20:30:59.000Z", "a later time means yesterday"
    assert [at(text) for text in ("", "25:00", "noon")] == [None, None, None]


def test_csv_cells_are_never_formulas(page: webdriver.Chrome) -> None:
    for text in ("=1+1", "+/smoke", "-2", "@x", "\tx", " =1", "\rx"):
        assert call_script(page, "csvCell", text) == f'"\'{text}"'
    assert call_script(page, "csvCell", -2.5) == "-2.5", "a number stays a number"
    assert call_script(page, "csvCell", 'say "a,b"') == '"say ""a,b"""'
    assert call_script(page, "csvCell", None) == ""
    rows = [{"filter": "+/#", "p95": 0.1}, {"filter": "a/b", "p95": None}]
    assert call_script(page, "csv", ["filter", "p95"], rows) == (
        'filter,p95\r\n"\'+/#",0.1\r\na/b,\r\n'
    )


def port_load(share: float, *, planned: bool = False) -> dict[str, Any]:
    return {"used": share, "planned": planned}


def network(*links: tuple[str, str], broker: str | None) -> dict[str, Any]:
    names = sorted({end for link in links for end in link})
    return {
        "switches": [{"id": name} for name in names],
        "links": [{"from": here, "to": places} for here, places in links],
        "broker": {"id": "edge", "switch": broker},
    }


@pytest.mark.parametrize(
    "links",
    [[("s", "s1"), ("s1", "s10")], [("s1", "s"), ("s10", "s1")], [("s", "s1"), ("s10", "s1")]],
)
def test_links_are_drawn_away_from_the_broker_in_either_direction(
    page: webdriver.Chrome, links: list[tuple[str, str]]
) -> None:
    """Names that are prefixes of other names are distinguished."""
    found = call_script(page, "tree", network(*links, broker="s"))
    assert found == {"roots": ["s"], "below": {"s": ["s1"], "s1": ["s10"], "s10": []}}
    places = [{"subscriber": "s1", "switch": "s10"}, {"subscriber": "broker", "switch": "s1"}]
    loads = {"s": {"s1": port_load(0.4)}, "s1": {"s10": port_load(0.9), "s": port_load(0.1)}}
    loads["s10"] = {"": port_load(1.2)}
    drawn = call_script(page, "drawing", network(*links, broker="s"), places, loads)
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
    assert depths == sorted(set(depths)), "each one is below the previous one"
    assert edges["switch s", "switch s1"]["label"] == "40 %"
    assert edges["switch s1", "switch s"]["label"] == "10 %", "both directions"
    assert edges["switch s1", "switch s10"]["label"] == "90 %"
    assert ("switch s10", "switch s1") not in edges
    assert ("broker", "switch s") in edges
    assert ("switch s10", "host s1") in edges


def test_planned_load_and_failing_switches_are_drawn_differently(page: webdriver.Chrome) -> None:
    page.execute_script(
        "document.documentElement.style.cssText = '--bad: red; --soft: grey; --good: green;';"
    )
    loads = {
        "a": {"b": port_load(0.4, planned=True)},
        "b": {"": port_load(0.3), "c": port_load(2, planned=True)},
    }
    given = network(("a", "b"), ("b", "c"), broker="a")
    drawn = call_script(page, "drawing", given, [], loads, {"c": "not connected"})
    data = {each["data"]["id"]: each["data"] for each in drawn}
    link = data["switch a > switch b"]
    assert (link["label"], link["colour"], link["line"]) == ("40 % planned", "grey", "dashed")
    style = lambda name: (data[f"switch {name}"]["label"], data[f"switch {name}"]["colour"])  # noqa: E731
    assert style("a") == ("a  40 % planned", "grey")
    assert style("b") == ("b  30 %", "green"), "the measured load decides the colour"
    assert style("c") == ("c: not connected", "red")


@pytest.mark.parametrize(
    ("state", "detail", "words"),
    [
        ("trouble", "refused", "the controller does not answer"),
        ("healthy", None, "unknown to the controller"),
        ("unknown", None, "the controller has not answered yet"),
        ("unknown", "not configured", "no controller"),
    ],
)
def test_reason_for_an_unknown_switch_state_is_shown(
    page: webdriver.Chrome, state: str, detail: str | None, words: str
) -> None:
    part = {"part": "controller", "kind": "controller", "state": state, "detail": detail}
    assert call_script(page, "whyUnknown", [part]) == words


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
def test_subscription_table_and_first_page_agree_on_lateness(
    page: webdriver.Chrome, p95: float | None, met: bool, silent: bool, late: bool
) -> None:
    one = {"deadline_seconds": 2, "delay_p95_seconds": p95, "deadline_met": met, "silent": silent}
    assert call_script(page, "isLate", one) is late
    assert call_script(page, "isLate", {**one, "deadline_seconds": None}) is False
    if p95 is not None:
        sure = {**one, "deadline_percentile": 0.99 if late else 0.5}
        assert call_script(page, "isLate", sure) is late
        untold = {**one, "deadline_percentile": 0.5 if late else 0.99, "silent": False}
        assert call_script(page, "isLate", untold) is (not met), "the prediction decides"


def measured_of_40(count: int) -> dict[str, int]:
    return {"measured_subscriptions": count, "subscriptions": 40}


def test_utility_shows_how_many_subscriptions_are_measured(page: webdriver.Chrome) -> None:
    assert call_script(page, "utilityFigure", 0.5, 0.9, measured_of_40(30)) == [
        "50 %",
        "measured for 30 of 40 subscriptions; predicted 90 %",
        "",
    ]
    assert call_script(page, "utilityFigure", 0.5, 0.9, measured_of_40(3)) == [
        "–",
        "measured 50 % for 3 of 40 subscriptions; predicted 90 %",
        "soft",
    ]
    assert call_script(page, "utilityFigure", None, 0.996, measured_of_40(0)) == [
        "–",
        "no recent measurements; predicted 99.6 %",
        "soft",
    ]


@pytest.mark.parametrize(
    ("late", "measured", "value", "style"),
    [(0, 40, 0, "good"), (0, 30, 0, ""), (0, 3, "–", "soft"), (2, 0, 2, "bad")],
)
def test_missed_deadlines_are_unknown_without_measurements(
    page: webdriver.Chrome, late: int, measured: int, value: Any, style: str
) -> None:
    under = f"of 40 with a deadline, {measured} measured"
    assert call_script(page, "missedFigure", late, measured_of_40(measured)) == [
        value,
        under,
        style,
    ]
    assert call_script(page, "missedFigure", 0, None)[1:] == ["no subscription has a deadline", ""]


@pytest.mark.parametrize(
    ("late", "severities", "version", "style", "words"),
    [
        (1, ["urgent"], 3, "bad", "1 subscription misses its deadline"),
        (2, [], 3, "bad", "2 subscriptions miss their deadline"),
        (0, ["note", "urgent", "warning"], 3, "bad", "1 urgent alert"),
        (0, ["warning", "note", "warning"], 3, "warn", "2 warnings"),
        (0, ["note"], 3, "unknown", "Some data is missing: 1 note"),
        (0, [], 0, "unknown", "Unknown: no configuration is active"),
        (0, [], 3, "good", "All is well"),
    ],
)
def test_state_of_the_site_in_one_sentence(
    page: webdriver.Chrome, late: int, severities: list[str], version: int, style: str, words: str
) -> None:
    alerts = [{"severity": each, "text": "…"} for each in severities]
    now = {"version": version, "late_in_all": late, "alerts": alerts}
    assert call_script(page, "verdict", now) == [style, words]


def test_preview_expires_with_configuration_or_phase(page: webdriver.Chrome) -> None:
    def seen(version: int, since: str, closed: str | None = None) -> dict[str, Any]:
        return {"version": version, "incident": {"phase_since": since, "closed_at": closed}}

    then = seen(3, "14:02")
    why = lambda now: call_script(page, "whyExpired", then, now)  # noqa: E731
    assert why(seen(3, "14:02")) == ""
    assert why(seen(4, "14:02")) == "Configuration 4 has become active since"
    for other in (seen(3, "14:03"), seen(3, "14:02", "14:04"), {"version": 3, "incident": None}):
        assert why(other) == "The incident or its phase has changed since"


def test_timely_utility_of_a_preview_counts_only_met_deadlines(page: webdriver.Chrome) -> None:
    rows = [{"utility": 3, "deadline_met": met} for met in (True, False, None)]
    found = call_script(page, "timelyShare", {"subscriptions": rows, "maximum_utility": 12})
    assert found == 0.5


SHOW_DIFFERENCE = """
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


def test_failed_configuration_shows_its_error_and_no_difference(page: webdriver.Chrome) -> None:
    def record(version: int, state: str, at: str | None, error: str | None = None) -> Any:
        given = {"version": version, "state": state, "activated_at": at, "error": error}
        return {**given, "reason": "a new crew"}

    failed = record(4, "failed", None, "503 core is away")
    shown = page.execute_async_script(SHOW_DIFFERENCE, [failed, record(3, "active", "14:02")])
    assert shown["asked"] == []
    assert "503 core is away" in shown["difference"]["children"]["props"]["children"]
    records = [record(5, "active", "14:05"), failed, record(3, "planned", None)]
    shown = page.execute_async_script(SHOW_DIFFERENCE, [*records, record(2, "replaced", "14:01")])
    assert shown["asked"] == ["/v1/configurations/2/difference/5"]


def test_tree_without_broker_switch_follows_link_directions(page: webdriver.Chrome) -> None:
    found = call_script(page, "tree", network(("a", "b"), ("b", "c"), broker=None))
    assert found["roots"] == ["a"]
    loop = call_script(page, "tree", network(("a", "b"), ("b", "a"), broker=None))
    assert sorted([*loop["roots"], *loop["below"]["a"], *loop["below"]["b"]]) == ["a", "b"]


def test_switches_of_publishers_are_drawn_above_the_broker(page: webdriver.Chrome) -> None:
    given = network(("core", "roof"), broker="core")
    given["switches"].append({"id": "lan", "managed": False})
    drawn = call_script(page, "drawing", given, [], {})
    y = {each["data"]["id"]: each["position"]["y"] for each in drawn if "position" in each}
    assert y["switch lan"] < y["broker"] < y["switch core"] < y["switch roof"]
    edges = [(e["data"]["source"], e["data"]["target"]) for e in drawn if e["data"].get("source")]
    assert ("switch lan", "broker") in edges
    assert ("broker", "switch lan") not in edges
    places = [{"subscriber": "crew", "switch": "lan"}]
    drawn = call_script(page, "drawing", given, places, {})
    y = {each["data"]["id"]: each["position"]["y"] for each in drawn if "position" in each}
    assert y["broker"] < y["switch lan"] < y["host crew"], "a subscriber is attached to it"


def test_utility_is_parsed_from_the_form(page: webdriver.Chrome) -> None:
    utility_of = lambda **given: call_script(page, "utilityOf", given)  # noqa: E731
    assert utility_of(kind="log", weight=3, shape="0.5") == {"kind": "log", "weight": 3}
    assert utility_of(kind="capped", weight=3, shape="0.5") == {
        "kind": "capped",
        "weight": 3,
        "enough": 0.5,
    }
    assert utility_of(kind="power", weight=3, shape=0.5) == {
        "kind": "power",
        "weight": 3,
        "exponent": 0.5,
    }
    assert utility_of(kind="piecewise-linear", weight=1, shape="0:0, 0.5:0.8, 1:1")["points"] == [
        [0, 0],
        [0.5, 0.8],
        [1, 1],
    ]
    error_message = (
        "try { firedex.utilityOf(arguments[0]); } catch (error) { return error.message; }"
    )
    for field, wrong in (
        ("Weight", {"kind": "log", "weight": ""}),
        ("Weight", {"kind": "log", "weight": "-3"}),
        ("Weight", {"kind": "log", "weight": "many"}),
        ("Shape", {"kind": "capped", "weight": 1, "shape": "2"}),
        ("Shape", {"kind": "power", "weight": 1, "shape": ""}),
        ("Shape", {"kind": "piecewise-linear", "weight": 1, "shape": "0:0, :1"}),
    ):
        assert page.execute_script(error_message, wrong).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("typed", "expected"),
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
def test_ambiguous_numbers_are_rejected(
    page: webdriver.Chrome, typed: str, expected: float | None
) -> None:
    assert call_script(page, "decimal", typed) == expected


@pytest.mark.parametrize("typed", ["-1", "abc", "0", "1e", "Infinity", "NaN", "1,500"])
def test_invalid_deadline_is_rejected_with_the_field_name(
    page: webdriver.Chrome, typed: str
) -> None:
    error_message = (
        "try { firedex.deadlineOf(arguments[0]); } catch (error) { return error.message; }"
    )
    message = page.execute_script(error_message, {"deadline": typed})
    assert message.startswith("Deadline: enter a number of seconds above 0"), message
    assert typed in message


def test_only_an_empty_field_means_no_deadline(page: webdriver.Chrome) -> None:
    assert [call_script(page, "deadlineOf", {"deadline": each}) for each in ("", " ", None)] == [
        None,
        None,
        None,
    ]
    assert call_script(page, "deadlineOf", {"deadline": "0,4"}) == 0.4


REPLAY_HISTORY = """
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


def test_selected_moment_stays_and_the_last_one_follows_new_data(
    page: webdriver.Chrome,
) -> None:
    first, second, chosen, still, again = page.execute_async_script(REPLAY_HISTORY)
    assert first["at"] < second["at"], "new data is followed"
    assert chosen["value"] == still["value"] == 20
    assert chosen["at"] == still["at"] < second["at"]
    assert chosen["label"] == still["label"]
    assert "selected" in still["label"]
    assert chosen["window"] == still["window"] == second["window"]
    assert again["at"] > second["at"]
    assert all(style["marks"] == [True] for style in (first, second, chosen, still, again))


def test_chart_separates_small_losses_and_names_configurations(page: webdriver.Chrome) -> None:
    def step(n: int, delivered: int, missing: int | None) -> dict[str, Any]:
        at = f"2026-03-01T14:0{n}:00Z"
        utility_of = {"at": at, "seconds": 60, "priority": 0, "delay_p95_seconds": 0.02}
        success = None if missing is None else delivered / (delivered + missing)
        return {**utility_of, "success_rate": success}

    steps = [step(0, 995, 5), step(1, 999, 1), step(2, 1000, 0), step(3, 0, 10), step(4, 10, None)]
    plans = [
        {"version": n, "activated_at": f"2026-03-01T14:0{n}:30Z", "reason": "a new crew"}
        for n in (1, 2)
    ]
    start = 1772373600  # 14:00
    figure = call_script(page, "replay", steps, plans, start, start + 600)
    _, drawn = figure["data"]
    assert drawn["yaxis"] == "y2"
    assert drawn["y"] == pytest.approx([0.005, 0.001, 0.0003, 1, None])
    assert drawn["text"][:2] == ["99.50 %", "99.90 %"]
    axis = figure["layout"]["yaxis2"]
    assert axis["type"] == "log"
    assert axis["range"][0] > axis["range"][1], "lower loss is drawn higher"
    names = figure["layout"]["annotations"]
    assert [each["text"] for each in names] == ["1", "2"]
    assert all(each["hovertext"].endswith("a new crew") for each in names)


def test_nearest_moment_is_found(page: webdriver.Chrome) -> None:
    moments = [f"2026-03-01T14:0{n}:00Z" for n in range(4)]
    assert call_script(page, "nearest", moments, moments[2]) == 2
    assert call_script(page, "nearest", moments, "2026-03-01T14:00:40Z") == 1
    assert call_script(page, "nearest", [], moments[0]) == 0
