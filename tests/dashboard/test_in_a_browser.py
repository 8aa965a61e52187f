"""What the dashboard must show, in a real browser against real parts on loopback."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from dashboard_pages import ALARM, BUSY, Pages
from free_ports import free_port
from live_site import LiveSite, served_site
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from service_site import Client

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.usefixtures("nothing_leaves")]


def test_a_token_signs_in_by_keyboard_alone(watching: Pages, busy: LiveSite) -> None:
    watching.visit()
    watching.until(lambda: watching.driver.find_element(By.ID, "token").is_displayed(), "the form")
    watching.type("token", busy.token + Keys.ENTER)
    watching.until_text("#visitor", "chief (command)")
    watching.until_text("#connection", "live")
    watching.tab_until({"to-topology", "to-subscriptions", "to-history", "theme", "sign-out"})
    watching.go("subscriptions")
    watching.until(lambda: watching.cell(ALARM, "priority"), "the table")
    watching.click("find")
    focused = watching.driver.switch_to
    for key in (Keys.TAB, Keys.ARROW_DOWN, Keys.SPACE):
        focused.active_element.send_keys(key)
    watching.until_text("#chosen", " of crew-")
    watching.tab_until({"weight", "deadline", "preview-change", "preview-removal", "phase"})


def test_what_is_measured_is_beside_what_is_predicted_and_moves(
    watching: Pages, busy: LiveSite
) -> None:
    watching.visit("", busy.token)
    figure = lambda: watching.class_figure(0, "measured-p95", "classes")  # noqa: E731
    first = watching.until(lambda: figure() if figure() not in ("", "–") else "", "a measured p95")
    watching.until(lambda: figure() not in ("", "–", first), "another measured p95")
    assert watching.class_figure(0, "predicted-p95", "classes") not in ("", "–")
    for part in ("gateway", "broker", "crew-1"):
        watching.until_text(f'#parts [data-part="{part}"][data-state="well"]', part)
    assert "core" in watching.text("#links")
    watching.until(lambda: "measured" in watching.text("#figures"), "measured utility")


def test_a_subscription_of_the_library_appears(watching: Pages, busy: LiveSite) -> None:
    watching.visit("subscriptions", busy.token)
    watching.until(lambda: watching.cell(ALARM, "priority"), "what was there")
    assert watching.cell("crew-new camera/#", "priority") == ""
    watching.intercept("/v1/deviations", BUSY)
    busy.subscriber("crew-new", camera=3.0)
    watching.until_text("#staleness", "Not updated for")
    watching.let_through()  # what came while the rest was refused is not lost
    watching.until(lambda: watching.cell("crew-new camera/#", "weight") == "3", "the new one")
    row = "crew-new camera/#"
    watching.until(lambda: watching.cell(row, "delay_p95_seconds"), "its measured delay")


@pytest.mark.long
def test_pages_that_nobody_sees_hold_up_no_other(watching: Pages, busy: LiveSite) -> None:
    """A browser has six connections to a service, and an event stream takes one."""
    first, began = watching.driver.current_window_handle, time.monotonic()
    for _ in range(8):
        watching.visit("", busy.token)
        watching.until_text("#connection", "live")
    for _ in range(8):
        watching.driver.switch_to.new_window("tab")
        watching.visit("", busy.token)
        watching.until_text("#connection", "live")
    assert time.monotonic() - began < 16 * 5
    for tab in watching.driver.window_handles:
        if tab != first:
            watching.driver.switch_to.window(tab)
            watching.driver.close()
    watching.driver.switch_to.window(first)
    watching.until_text("#connection", "live")


def test_a_killed_client_shows_as_stale(watching: Pages, busy: LiveSite) -> None:
    process = busy.client_process("crew-killed")
    watching.visit("", busy.token)
    watching.until_text('#parts [data-part="crew-killed"][data-state="well"]', "well")
    process.kill()
    watching.until_text('#parts [data-part="crew-killed"][data-state="stale"]', "silent for")
    watching.until_text("#alerts", "crew-killed is silent: it is not known what reaches it")


def test_history_says_why_what_and_how_it_was(watching: Pages, busy: LiveSite) -> None:
    watching.visit("history", busy.token)
    watching.until_text("#configurations .ag-center-cols-container", "crew-1")
    watching.until(
        lambda: watching.driver.find_elements(By.CSS_SELECTOR, "#replay .scatterlayer .trace"),
        "lines",
    )
    watching.until_text("#at-moment", "class 0")
    watching.click_on("#configurations .ag-row[row-index='0'] [col-id='reason']")
    watching.until_text("#difference", "From plan")
    asked = "return performance.getEntriesByType('resource').map((each) => each.name);"
    watching.driver.execute_script("performance.clearResourceTimings();")
    paths = lambda: [n.partition("/v1/")[2] for n in watching.driver.execute_script(asked)]  # noqa: E731
    version = "return firedex.state.overview.version;"
    before = watching.driver.execute_script(version)
    watching.until(lambda: len([p for p in paths() if p.startswith("overview")]) >= 6, "looks")
    plans = watching.driver.execute_script(version) - before
    asked_for = [p for p in paths() if p.startswith("history")]
    assert len(asked_for) <= 1 + plans, "every ten seconds, and for every new plan"


def test_times_are_where_the_viewer_is(watching: Pages, busy: LiveSite) -> None:
    there = ZoneInfo("America/Los_Angeles")
    watching.zone(there.key)
    try:
        watching.visit("history", busy.token)
        watching.until_text("#until-note", "America/Los_Angeles time")
        chart = "return document.querySelector('#replay .js-plotly-plot')?."
        last = watching.until(
            lambda: watching.driver.execute_script(f"{chart}data[0].x.at(-1);"), "a point"
        )
        read = lambda text: datetime.fromisoformat(text).replace(tzinfo=there)  # noqa: E731
        now = datetime.now(UTC)
        assert abs(now - read(last)) < timedelta(minutes=2)
        begin, end = watching.driver.execute_script(f"{chart}layout.xaxis.range;")
        assert abs(now - read(end)) < timedelta(minutes=2)
        assert read(begin) <= read(last) <= read(end)
        marks = watching.driver.execute_script(f"{chart}layout.shapes.map((each) => each.x0);")
        assert marks
        assert all(read(begin) <= read(mark) <= read(end) for mark in marks)
        watching.go("now")
        since = busy.chief.get("/v1/overview").json["in_force_since"]
        here = datetime.fromisoformat(since).astimezone(there)
        watching.until_text("#plan", f"in force since {here:%H:%M:%S}")
    finally:
        watching.zone("")


def test_tables_are_exported(watching: Pages, busy: LiveSite, tmp_path: Path) -> None:
    busy.subscriber("crew-any", **{"+": 1.0})
    watching.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    watching.visit("subscriptions", busy.token)
    watching.until(lambda: watching.cell(ALARM, "delay_p95_seconds"), "what is measured")
    watching.until(lambda: watching.cell("crew-any +/#", "priority"), "what looks like a formula")
    watching.click("export-subscriptions")
    table = tmp_path / "firedex-subscriptions.csv"
    watching.until(lambda: table.exists() and "alarm/#" in table.read_text(), "the subscriptions")
    assert '"\'+/#",crew-any' in table.read_text()
    watching.go("history")
    watching.until_text("#at-moment", "class 0")
    watching.click("export-history")
    steps = tmp_path / "firedex-history.csv"
    watching.until(
        lambda: steps.exists() and steps.read_text().startswith("at,seconds,priority,"), "the steps"
    )


def test_topology_shows_switches_and_a_click_what_they_do(watching: Pages, busy: LiveSite) -> None:
    watching.visit("topology", busy.token)
    watching.until_text("#switches .ag-center-cols-container", "core")
    watching.click_on("#switches .ag-row[row-id='core'] [col-id='id']")
    watching.until_text("#switch-title", "Switch core")
    canvas = lambda: watching.driver.find_elements(By.CSS_SELECTOR, "#network canvas")  # noqa: E731
    watching.until(canvas, "the drawing")
    watching.click_on("#switches .ag-row[row-id='lan'] [col-id='id']")
    watching.until_text("#switch-title", "Switch lan")
    place = """const box = document.querySelector("#network"), cy = box._cyreg?.cy
        ?? [...box.querySelectorAll("*")].find((each) => each._cyreg)._cyreg.cy;
        const at = cy.getElementById("switch core").renderedPosition();
        const seen = cy.container().getBoundingClientRect();
        return [at.x - seen.width / 2, at.y - seen.height / 2];"""

    def clicked() -> bool:
        x, y = watching.driver.execute_script(place)
        box = watching.driver.find_element(By.CSS_SELECTOR, "#network canvas")
        watching.driver.execute_script("arguments[0].scrollIntoView({block: 'center'});", box)
        ActionChains(watching.driver).move_to_element_with_offset(
            box, int(x), int(y)
        ).click().perform()
        return watching.text("#switch-title") == "Switch core"

    watching.until(clicked, "a click on the drawing")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(BUSY, "cannot answer now (503)", id="unavailable"),
        pytest.param(
            "() => Promise.resolve(new Response('{}', {status: 429}))",
            "asked too often",
            id="too often",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "() => Promise.reject(new TypeError('gone'))",
            "does not answer",
            id="away",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "(real) => new Promise((done) => setTimeout(done, 8000)).then(real)",
            "is awaited",
            id="slow",
            marks=pytest.mark.long,
        ),
    ],
)
def test_old_figures_are_said_to_be_old(
    watching: Pages, busy: LiveSite, answer: str, why: str
) -> None:
    watching.visit("", busy.token)
    watching.until_text("#connection", "live")
    watching.until_text("#figures", "Utility achieved")
    watching.intercept("/v1/overview", answer)
    watching.until_text("#connection", "reconnecting")
    watching.until_text("#staleness", "Not updated for")
    watching.until_text("#staleness", why)
    watching.let_through()
    watching.until_text("#connection", "live")
    watching.until(lambda: not watching.shown("staleness"), "fresh figures")


NEVER = "() => new Promise(() => {})"


def later(pages: Pages, seconds: float) -> None:
    """The machine has slept: its ticks stood still, its clock did not."""
    script = "const real = Date.now; Date.now = () => real() + 1000 * arguments[0];"
    pages.driver.execute_script(script, seconds)


def test_what_was_seen_before_a_sleep_is_old(watching: Pages, busy: LiveSite) -> None:
    watching.visit("", busy.token)
    watching.until_text("#figures", "Utility achieved")
    watching.intercept("/v1/overview", NEVER)
    later(watching, 300)
    watching.driver.execute_script("document.dispatchEvent(new Event('visibilitychange'));")
    watching.until_text("#staleness", "Not updated for 5 min")
    watching.visit("", busy.token)


def test_a_page_that_is_returned_to_is_as_old_as_it_is(watching: Pages, busy: LiveSite) -> None:
    watching.visit("", busy.token)
    watching.until_text("#figures", "Utility achieved")
    watching.go("topology")
    watching.until_text("#switches .ag-center-cols-container", "core")
    later(watching, 100)
    watching.until(lambda: not watching.shown("staleness"), "a fresh topology")
    watching.intercept("/v1/overview", NEVER)
    watching.go("now")
    watching.until_text("#staleness", "Not updated for 2 min")
    watching.visit("", busy.token)


def test_what_is_not_known_is_said(watching: Pages, busy: LiveSite) -> None:
    watching.visit("", busy.token)
    watching.until_text("#alerts", "controller: none is set")
    watching.until_text("#alerts-said", "note")
    watching.until_text("#classes-note", "within the last 30 s")


def test_a_subscriber_sees_its_own_wherever_it_comes_in(watching: Pages, busy: LiveSite) -> None:
    token = busy.service.token("one", "subscriber", "crew-1")
    for page in ("", "topology"):
        watching.visit(page, token)
        watching.until(lambda: watching.cell(ALARM, "delay_p95_seconds"), "its measured delay")
        watching.until_text("#own", "your own")
        assert watching.driver.current_url.endswith("/dashboard/subscriptions")
        assert not watching.shown("to-now")
        assert not watching.shown("phase-form")
    watching.visit("", busy.service.token("sensor", "publisher", "p0"))
    watching.until_text("#own", "nothing to see here")
    assert not watching.shown("page-now")


@pytest.mark.refused("status of 401")
def test_a_token_that_is_revoked_leaves_nothing(watching: Pages, busy: LiveSite) -> None:
    token = busy.service.token("leaver", "operator")
    watching.visit("", token)
    watching.until_text("#figures", "Utility achieved")
    assert busy.service.running is not None
    busy.service.running.service.tokens.revoke("leaver")
    watching.until(lambda: watching.shown("token"), "the form")
    watching.until_text("#sign-in-refusal", "not valid")
    assert watching.text("#figures") == watching.text("#visitor") == ""
    assert watching.driver.execute_script("return sessionStorage.length;") == 0
    watching.type("token", busy.token + Keys.ENTER)
    watching.until_text("#visitor", "chief (command)")


def test_who_signs_out_leaves_nothing_to_come_back_to(watching: Pages, busy: LiveSite) -> None:
    watching.visit("", "")
    watching.until(lambda: watching.shown("token"), "the form")
    watching.type("token", busy.token + Keys.ENTER)
    watching.until_text("#figures", "Utility achieved")
    watching.go("topology")
    watching.until_text("#switches .ag-center-cols-container", "core")
    watching.click("sign-out")
    watching.until(lambda: watching.shown("token"), "the form")
    for _ in range(2):
        watching.driver.back()
        watching.until(lambda: watching.shown("token"), "the form")
        for page in FILLED:
            assert not watching.shown(f"page-{page}")
            assert not watching.shown(f"to-{page}")
        for part in ("#incident", "#visitor", "#figures", "#page-topology"):
            assert watching.text(part) == ""
        assert watching.text("#site") == "FireDeX"


FILLED = {
    "now": ("#classes", "class 0"),
    "topology": ("#switches .ag-center-cols-container", "core"),
    "subscriptions": ("#subscriptions .ag-center-cols-container", "alarm/#"),
    "history": ("#configurations .ag-center-cols-container", "crew-1"),
}


def test_dark_and_narrow(watching: Pages, busy: LiveSite) -> None:
    watching.visit("", busy.token)
    watching.until_text("#figures", "Utility achieved")
    watching.click("theme")
    ground = "return getComputedStyle(document.body).backgroundColor;"
    watching.until(lambda: watching.driver.execute_script(ground) == "rgb(16, 19, 24)", "dark")
    watching.driver.refresh()
    watching.until(lambda: watching.driver.execute_script(ground) == "rgb(16, 19, 24)", "dark")
    watching.until_text("#figures", "Utility achieved")
    size = watching.driver.get_window_size()
    watching.driver.set_window_size(768, 1024)
    try:
        wide = "return document.documentElement.scrollWidth - window.innerWidth;"
        for page, (where, text) in FILLED.items():
            watching.go(page)
            watching.until_text(where, text)
            watching.until(lambda p=page: watching.shown(f"page-{p}"), page)  # type: ignore[misc]
            assert watching.driver.execute_script(wide) <= 0, f"something sticks out of {page}"
    finally:
        watching.driver.set_window_size(size["width"], size["height"])
    watching.driver.execute_script("localStorage.clear();")


@pytest.mark.refused("status of 404")
def test_a_subscriber_that_is_not_there_is_said_to_be_none(watching: Pages, busy: LiveSite) -> None:
    watching.visit("subscriptions?subscriber=nobody", busy.token)
    watching.until_text("#refusal", "There is no subscriber “nobody”")
    watching.until_text("#connection", "live")
    busy.subscriber("nobody", alarm=1.0)
    watching.until(lambda: watching.cell("nobody alarm/#", "priority"), "now there is")
    assert not watching.shown("refusal")


def test_a_browser_of_some_years_ago_is_enough(watching: Pages, busy: LiveSite) -> None:
    source = "delete AbortSignal.any; delete AbortSignal.timeout; delete crypto.randomUUID;"
    script = watching.driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": source}
    )
    try:
        watching.visit("", busy.token)
        assert watching.driver.execute_script("return AbortSignal.any === undefined;")
        watching.until_text("#connection", "live")
    finally:
        watching.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_a_dark_system_sees_no_light_page(watching: Pages) -> None:
    run, command = watching.driver.execute_script, watching.driver.execute_cdp_cmd
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    command("Emulation.setEmulatedMedia", dark)
    command("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        watching.visit()
        ground = "return getComputedStyle(document.body).backgroundColor;"
        assert run(ground) == "rgb(16, 19, 24)"
    finally:
        command("Emulation.setScriptExecutionDisabled", {"value": False})
        command("Emulation.setEmulatedMedia", {"features": []})
        watching.visit()


NAMELESS = """
    const shown = (all) =>
      [...document.querySelectorAll(all)].filter((each) => each.checkVisibility());
    const field = (label) => document.getElementById(label.htmlFor);
    const lost = shown("label[for]").filter((each) => !field(each)?.labels);
    const named = (each) => each.getAttribute("aria-label") || each.getAttribute("aria-labelledby")
      || each.labels?.[0]?.textContent || each.textContent || each.title;
    const bare = shown("input, button, [role=slider]").filter((each) => !named(each));
    return [...lost, ...bare].map((each) => each.outerHTML.slice(0, 120));"""


@pytest.mark.parametrize("page", ["subscriptions", "history"])
def test_every_field_has_a_name(watching: Pages, busy: LiveSite, page: str) -> None:
    watching.visit(page, busy.token)
    where, text = FILLED[page]
    watching.until_text(where, text)
    watching.until(lambda: not watching.driver.execute_script(NAMELESS), "names for all")


SEEN = """const box = document.querySelector(arguments[0]).getBoundingClientRect();
    return [box.top, box.bottom];"""
CUT = """return [...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility()
    && each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent);"""
COLUMNS = """return [...document.querySelectorAll("#subscriptions .ag-header-cell")]
    .map((each) => each.getAttribute("col-id"));"""


def test_a_tablet_shows_at_once_what_matters(watching: Pages, busy: LiveSite) -> None:
    run = watching.driver.execute_script
    with watching.screen(768, 1024):
        watching.visit("", busy.token)
        watching.until_text("#alerts", "none is set")
        watching.until(lambda: watching.text("#verdict") not in ("", "Not known yet"), "a verdict")
        verdict, alerts, figures = (
            run(SEEN, f"#{name}") for name in ("verdict", "alerts", "figures")
        )
        assert run(SEEN, "header")[1] < 110, "two lines"
        assert verdict[1] < alerts[0] < alerts[1] < figures[0]
        assert run(SEEN, "#alerts li")[1] < 350, "above the fold, wherever the rest ends"
        watching.go("subscriptions")
        watching.until(lambda: watching.cell(ALARM, "delay_p95_seconds"), "what is measured")
        watching.until(lambda: "weight" not in run(COLUMNS), "what matters most")
        wanted = {"late_rank", "priority", "filter", "subscriber", "delay_p95_seconds"}
        assert set(run(COLUMNS)) >= {*wanted, "predicted_delay_p95_seconds", "success_rate"}
        watching.until(lambda: not run(CUT, "#subscriptions .ag-center-cols-viewport"), "all of it")
        cells = "#subscriptions .ag-header-cell-text, #subscriptions .ag-cell"
        watching.until(lambda: not run(CUT, cells), "whole figures")
        top, bottom = run(SEEN, "#subscriptions")
        rows = run("return document.querySelectorAll('#subscriptions .ag-row').length;")
        assert bottom - top < 42 * rows + 100, "as high as its rows"
    watching.until(lambda: "weight" in run(COLUMNS), "all of it where there is room")


@pytest.mark.refused("net::ERR_")
def test_a_restart_of_the_service_is_survived(browser: webdriver.Chrome, tmp_path: Path) -> None:
    service = served_site(tmp_path, port=free_port())
    pages = Pages(browser, f"http://127.0.0.1:{service.options.port}")
    with service.serving():
        token = service.token("chief", "command")
        pages.visit("", token)
        pages.until_text("#connection", "live")
    pages.until_text("#connection", "reconnecting")
    with service.serving():
        pages.until_text("#connection", "live")
        Client(service.url, token).ask(
            "POST", "/v1/incident", {"title": "after the restart", "phase": "search"}
        )
        pages.until_text("#incident", "after the restart: search")
        browser.get("about:blank")
