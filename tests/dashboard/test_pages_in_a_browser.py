"""The pages of the dashboard in a real browser, with real components on loopback."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.support.dashboard_pages import ALARM, BUSY, Pages
from tests.support.free_ports import free_port
from tests.support.live_site import LiveSite, served_site
from tests.support.service_site import Client

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.usefixtures("no_external_requests")]


@pytest.fixture
def pages(browser: webdriver.Chrome, busy_site: LiveSite) -> Pages:
    return Pages(browser, busy_site.service.url)


def test_sign_in_and_selection_work_by_keyboard(pages: Pages, busy_site: LiveSite) -> None:
    pages.visit()
    pages.until(lambda: pages.driver.find_element(By.ID, "token").is_displayed(), "the form")
    pages.type("token", busy_site.token + Keys.ENTER)
    pages.until_text("#visitor", "chief (command)")
    pages.until_text("#connection", "live")
    pages.tab_until({"to-topology", "to-subscriptions", "to-history", "theme", "sign-out"})
    pages.follow_link("subscriptions")
    pages.until(lambda: pages.cell(ALARM, "priority"), "the table")
    pages.click("find")
    focused = pages.driver.switch_to
    for key in (Keys.TAB, Keys.ARROW_DOWN, Keys.SPACE):
        focused.active_element.send_keys(key)
    pages.until_text("#chosen", " of crew-")
    pages.tab_until({"weight", "deadline", "preview-change", "preview-removal", "phase"})


def test_measured_delay_is_shown_beside_the_prediction_and_updates(
    pages: Pages, busy_site: LiveSite
) -> None:
    pages.visit("", busy_site.token)
    measured_p95 = lambda: pages.class_figure(0, "measured-p95", "classes")  # noqa: E731
    first = pages.until(
        lambda: measured_p95() if measured_p95() not in ("", "–") else "", "a measured p95"
    )
    pages.until(lambda: measured_p95() not in ("", "–", first), "another measured p95")
    assert pages.class_figure(0, "predicted-p95", "classes") not in ("", "–")
    for part in ("gateway", "broker", "crew-1"):
        pages.until_text(f'#parts [data-part="{part}"][data-state="healthy"]', part)
    assert "core" in pages.text("#links")
    pages.until(lambda: "measured" in pages.text("#figures"), "measured utility")


def test_new_subscription_appears_without_reload(pages: Pages, busy_site: LiveSite) -> None:
    pages.visit("subscriptions", busy_site.token)
    pages.until(lambda: pages.cell(ALARM, "priority"), "the existing subscriptions")
    assert pages.cell("crew-new camera/#", "priority") == ""
    pages.intercept("/v1/deviations", BUSY)
    busy_site.subscriber("crew-new", camera=3.0)
    pages.until_text("#staleness", "Not updated for")
    pages.stop_intercepting()  # data that arrived while other requests failed is not lost
    pages.until(lambda: pages.cell("crew-new camera/#", "weight") == "3", "the new subscription")
    row = "crew-new camera/#"
    pages.until(lambda: pages.cell(row, "delay_p95_seconds"), "its measured delay")


@pytest.mark.long
def test_hidden_pages_do_not_block_visible_pages(pages: Pages, busy_site: LiveSite) -> None:
    """Browsers allow six connections to a host, and each event stream uses one."""
    first, start = pages.driver.current_window_handle, time.monotonic()
    for _ in range(8):
        pages.visit("", busy_site.token)
        pages.until_text("#connection", "live")
    for _ in range(8):
        pages.driver.switch_to.new_window("tab")
        pages.visit("", busy_site.token)
        pages.until_text("#connection", "live")
    assert time.monotonic() - start < 16 * 5
    for tab in pages.driver.window_handles:
        if tab != first:
            pages.driver.switch_to.window(tab)
            pages.driver.close()
    pages.driver.switch_to.window(first)
    pages.until_text("#connection", "live")


def test_killed_client_is_shown_as_stale(pages: Pages, busy_site: LiveSite) -> None:
    process = busy_site.client_process("crew-killed")
    pages.visit("", busy_site.token)
    pages.until_text('#parts [data-part="crew-killed"][data-state="healthy"]', "healthy")
    process.kill()
    pages.until_text('#parts [data-part="crew-killed"][data-state="stale"]', "no heartbeat for")
    pages.until_text("#alerts", "crew-killed has stopped sending heartbeats")


def test_history_shows_reasons_differences_and_charts(pages: Pages, busy_site: LiveSite) -> None:
    pages.visit("history", busy_site.token)
    pages.until_text("#configurations .ag-center-cols-container", "crew-1")
    pages.until(
        lambda: pages.driver.find_elements(By.CSS_SELECTOR, "#replay .scatterlayer .trace"),
        "lines",
    )
    pages.until_text("#at-moment", "class 0")
    pages.click_on("#configurations .ag-row[row-index='0'] [col-id='reason']")
    pages.until_text("#difference", "From configuration")
    requested_urls = "return performance.getEntriesByType('resource').map((each) => each.name);"
    pages.driver.execute_script("performance.clearResourceTimings();")
    paths = lambda: [n.partition("/v1/")[2] for n in pages.driver.execute_script(requested_urls)]  # noqa: E731
    version = "return firedex.state.overview.version;"
    before = pages.driver.execute_script(version)
    pages.until(lambda: len([p for p in paths() if p.startswith("overview")]) >= 6, "six requests")
    plans = pages.driver.execute_script(version) - before
    history_requests = [p for p in paths() if p.startswith("history")]
    assert len(history_requests) <= 1 + plans, (
        "one every ten seconds, and one for each new configuration"
    )


def test_times_use_the_time_zone_of_the_viewer(pages: Pages, busy_site: LiveSite) -> None:
    time_zone = ZoneInfo("America/Los_Angeles")
    pages.set_time_zone(time_zone.key)
    try:
        pages.visit("history", busy_site.token)
        pages.until_text("#until-note", "America/Los_Angeles time")
        chart = "return document.querySelector('#replay .js-plotly-plot')?."
        last = pages.until(
            lambda: pages.driver.execute_script(f"{chart}data[0].x.at(-1);"), "a point"
        )
        parse_time = lambda text: datetime.fromisoformat(text).replace(tzinfo=time_zone)  # noqa: E731
        now = datetime.now(UTC)
        assert abs(now - parse_time(last)) < timedelta(minutes=2)
        begin, end = pages.driver.execute_script(f"{chart}layout.xaxis.range;")
        assert abs(now - parse_time(end)) < timedelta(minutes=2)
        assert parse_time(begin) <= parse_time(last) <= parse_time(end)
        marks = pages.driver.execute_script(f"{chart}layout.shapes.map((each) => each.x0);")
        assert marks
        assert all(parse_time(begin) <= parse_time(mark) <= parse_time(end) for mark in marks)
        pages.follow_link("now")
        since = busy_site.chief.get("/v1/overview").json["active_since"]
        here = datetime.fromisoformat(since).astimezone(time_zone)
        pages.until_text("#plan", f"active since {here:%H:%M:%S}")
    finally:
        pages.set_time_zone("")


def test_tables_are_exported_as_csv(pages: Pages, busy_site: LiveSite, tmp_path: Path) -> None:
    busy_site.subscriber("crew-any", **{"+": 1.0})
    pages.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    pages.visit("subscriptions", busy_site.token)
    pages.until(lambda: pages.cell(ALARM, "delay_p95_seconds"), "the measured delay")
    pages.until(
        lambda: pages.cell("crew-any +/#", "priority"), "the filter that looks like a formula"
    )
    pages.click("export-subscriptions")
    table = tmp_path / "firedex-subscriptions.csv"
    pages.until(lambda: table.exists() and "alarm/#" in table.read_text(), "the subscriptions")
    assert '"\'+/#",crew-any' in table.read_text()
    pages.follow_link("history")
    pages.until_text("#at-moment", "class 0")
    pages.click("export-history")
    steps = tmp_path / "firedex-history.csv"
    pages.until(
        lambda: steps.exists() and steps.read_text().startswith("at,seconds,priority,"), "the steps"
    )


def test_topology_shows_switches_and_details_on_click(pages: Pages, busy_site: LiveSite) -> None:
    pages.visit("topology", busy_site.token)
    pages.until_text("#switches .ag-center-cols-container", "core")
    pages.click_on("#switches .ag-row[row-id='core'] [col-id='id']")
    pages.until_text("#switch-title", "Switch core")
    canvas = lambda: pages.driver.find_elements(By.CSS_SELECTOR, "#network canvas")  # noqa: E731
    pages.until(canvas, "the drawing")
    pages.click_on("#switches .ag-row[row-id='lan'] [col-id='id']")
    pages.until_text("#switch-title", "Switch lan")
    position = """const box = document.querySelector("#network"), cy = box._cyreg?.cy
        ?? [...box.querySelectorAll("*")].find((each) => each._cyreg)._cyreg.cy;
        const at = cy.getElementById("switch core").renderedPosition();
        const seen = cy.container().getBoundingClientRect();
        return [at.x - seen.width / 2, at.y - seen.height / 2];"""

    def click_succeeds() -> bool:
        x, y = pages.driver.execute_script(position)
        box = pages.driver.find_element(By.CSS_SELECTOR, "#network canvas")
        pages.driver.execute_script("arguments[0].scrollIntoView({block: 'center'});", box)
        ActionChains(pages.driver).move_to_element_with_offset(
            box, int(x), int(y)
        ).click().perform()
        return pages.text("#switch-title") == "Switch core"

    pages.until(click_succeeds, "a click on the drawing")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        pytest.param(BUSY, "temporarily unavailable (503)", id="unavailable"),
        pytest.param(
            "() => Promise.resolve(new Response('{}', {status: 429}))",
            "too many requests",
            id="rate limited",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "() => Promise.reject(new TypeError('connection refused'))",
            "does not answer",
            id="unreachable",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "(real) => new Promise((done) => setTimeout(done, 8000)).then(real)",
            "waiting for a response",
            id="slow",
            marks=pytest.mark.long,
        ),
    ],
)
def test_outdated_values_are_marked_with_the_reason(
    pages: Pages, busy_site: LiveSite, response: str, reason: str
) -> None:
    pages.visit("", busy_site.token)
    pages.until_text("#connection", "live")
    pages.until_text("#figures", "Utility achieved")
    pages.intercept("/v1/overview", response)
    pages.until_text("#connection", "reconnecting")
    pages.until_text("#staleness", "Not updated for")
    pages.until_text("#staleness", reason)
    pages.stop_intercepting()
    pages.until_text("#connection", "live")
    pages.until(lambda: not pages.is_visible("staleness"), "current values")


NO_RESPONSE = "() => new Promise(() => {})"


def advance_clock(pages: Pages, seconds: float) -> None:
    """Advance the wall clock but not the monotonic clock, as a suspended computer does."""
    script = "const real = Date.now; Date.now = () => real() + 1000 * arguments[0];"
    pages.driver.execute_script(script, seconds)


def test_values_from_before_a_suspend_are_marked_as_outdated(
    pages: Pages, busy_site: LiveSite
) -> None:
    pages.visit("", busy_site.token)
    pages.until_text("#figures", "Utility achieved")
    pages.intercept("/v1/overview", NO_RESPONSE)
    # A response to an earlier request would update the values.
    pages.until(lambda: pages.is_visible("staleness"), "no more responses")
    advance_clock(pages, 300)
    pages.driver.execute_script("document.dispatchEvent(new Event('visibilitychange'));")
    pages.until_text("#staleness", "Not updated for 5 min")
    pages.visit("", busy_site.token)


def test_page_keeps_its_age_while_another_page_is_open(pages: Pages, busy_site: LiveSite) -> None:
    pages.visit("", busy_site.token)
    pages.until_text("#figures", "Utility achieved")
    pages.follow_link("topology")
    pages.until_text("#switches .ag-center-cols-container", "core")
    advance_clock(pages, 100)
    pages.until(lambda: not pages.is_visible("staleness"), "a current topology")
    pages.intercept("/v1/overview", NO_RESPONSE)
    pages.follow_link("now")
    pages.until_text("#staleness", "Not updated for 2 min")
    pages.visit("", busy_site.token)


def test_missing_data_is_reported(pages: Pages, busy_site: LiveSite) -> None:
    pages.visit("", busy_site.token)
    pages.until_text("#alerts", "controller: not configured")
    pages.until_text("#alerts-said", "note")
    pages.until_text("#classes-note", "within the last 30 s")


def test_subscriber_sees_only_its_own_subscriptions_on_every_page(
    pages: Pages, busy_site: LiveSite
) -> None:
    token = busy_site.service.token("one", "subscriber", "crew-1")
    for page in ("", "topology"):
        pages.visit(page, token)
        pages.until(lambda: pages.cell(ALARM, "delay_p95_seconds"), "its measured delay")
        pages.until_text("#own", "your own subscriptions")
        assert pages.driver.current_url.endswith("/dashboard/subscriptions")
        assert not pages.is_visible("to-now")
        assert not pages.is_visible("phase-form")
    pages.visit("", busy_site.service.token("sensor", "publisher", "p0"))
    pages.until_text("#own", "cannot use the dashboard")
    assert not pages.is_visible("page-now")


@pytest.mark.refused("status of 401")
def test_revoked_token_clears_the_page(pages: Pages, busy_site: LiveSite) -> None:
    token = busy_site.service.token("temporary", "operator")
    pages.visit("", token)
    pages.until_text("#figures", "Utility achieved")
    assert busy_site.service.running is not None
    busy_site.service.running.service.tokens.revoke("temporary")
    pages.until(lambda: pages.is_visible("token"), "the form")
    pages.until_text("#sign-in-refusal", "not valid")
    assert pages.text("#figures") == pages.text("#visitor") == ""
    assert pages.driver.execute_script("return sessionStorage.length;") == 0
    pages.type("token", busy_site.token + Keys.ENTER)
    pages.until_text("#visitor", "chief (command)")


def test_back_button_shows_nothing_after_sign_out(pages: Pages, busy_site: LiveSite) -> None:
    pages.visit("", "")
    pages.until(lambda: pages.is_visible("token"), "the form")
    pages.type("token", busy_site.token + Keys.ENTER)
    pages.until_text("#figures", "Utility achieved")
    pages.follow_link("topology")
    pages.until_text("#switches .ag-center-cols-container", "core")
    pages.click("sign-out")
    pages.until(lambda: pages.is_visible("token"), "the form")
    for _ in range(2):
        pages.driver.back()
        pages.until(lambda: pages.is_visible("token"), "the form")
        for page in PAGE_CONTENT:
            assert not pages.is_visible(f"page-{page}")
            assert not pages.is_visible(f"to-{page}")
        for part in ("#incident", "#visitor", "#figures", "#page-topology"):
            assert pages.text(part) == ""
        assert pages.text("#site") == "FireDeX"


PAGE_CONTENT = {
    "now": ("#classes", "class 0"),
    "topology": ("#switches .ag-center-cols-container", "core"),
    "subscriptions": ("#subscriptions .ag-center-cols-container", "alarm/#"),
    "history": ("#configurations .ag-center-cols-container", "crew-1"),
}


def test_dark_theme_persists_and_narrow_pages_do_not_overflow(
    pages: Pages, busy_site: LiveSite
) -> None:
    pages.visit("", busy_site.token)
    pages.until_text("#figures", "Utility achieved")
    pages.click("theme")
    background = "return getComputedStyle(document.body).backgroundColor;"
    pages.until(lambda: pages.driver.execute_script(background) == "rgb(16, 19, 24)", "dark")
    pages.driver.refresh()
    pages.until(lambda: pages.driver.execute_script(background) == "rgb(16, 19, 24)", "dark")
    pages.until_text("#figures", "Utility achieved")
    size = pages.driver.get_window_size()
    pages.driver.set_window_size(768, 1024)
    try:
        overflow = "return document.documentElement.scrollWidth - window.innerWidth;"
        for page, (selector, text) in PAGE_CONTENT.items():
            pages.follow_link(page)
            pages.until_text(selector, text)
            pages.until(lambda p=page: pages.is_visible(f"page-{p}"), page)  # type: ignore[misc]
            assert pages.driver.execute_script(overflow) <= 0, f"{page} is wider than the screen"
    finally:
        pages.driver.set_window_size(size["width"], size["height"])
    pages.driver.execute_script("localStorage.clear();")


@pytest.mark.refused("status of 404")
def test_unknown_subscriber_is_reported_until_it_registers(
    pages: Pages, busy_site: LiveSite
) -> None:
    pages.visit("subscriptions?subscriber=nobody", busy_site.token)
    pages.until_text("#refusal", "There is no subscriber “nobody”")
    pages.until_text("#connection", "live")
    busy_site.subscriber("nobody", alarm=1.0)
    pages.until(lambda: pages.cell("nobody alarm/#", "priority"), "the new subscriber")
    assert not pages.is_visible("refusal")


def test_older_browser_is_supported(pages: Pages, busy_site: LiveSite) -> None:
    source = "delete AbortSignal.any; delete AbortSignal.timeout; delete crypto.randomUUID;"
    script = pages.driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": source}
    )
    try:
        pages.visit("", busy_site.token)
        assert pages.driver.execute_script("return AbortSignal.any === undefined;")
        pages.until_text("#connection", "live")
    finally:
        pages.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_dark_system_setting_applies_before_scripts_run(pages: Pages) -> None:
    run, command = pages.driver.execute_script, pages.driver.execute_cdp_cmd
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    command("Emulation.setEmulatedMedia", dark)
    command("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        pages.visit()
        background = "return getComputedStyle(document.body).backgroundColor;"
        assert run(background) == "rgb(16, 19, 24)"
    finally:
        command("Emulation.setScriptExecutionDisabled", {"value": False})
        command("Emulation.setEmulatedMedia", {"features": []})
        pages.visit()


FIELDS_WITHOUT_NAME = """
    const shown = (all) =>
      [...document.querySelectorAll(all)].filter((each) => each.checkVisibility());
    const field = (label) => document.getElementById(label.htmlFor);
    const lost = shown("label[for]").filter((each) => !field(each)?.labels);
    const named = (each) => each.getAttribute("aria-label") || each.getAttribute("aria-labelledby")
      || each.labels?.[0]?.textContent || each.textContent || each.title;
    const bare = shown("input, button, [role=slider]").filter((each) => !named(each));
    return [...lost, ...bare].map((each) => each.outerHTML.slice(0, 120));"""


@pytest.mark.parametrize("page", ["subscriptions", "history"])
def test_every_field_has_an_accessible_name(pages: Pages, busy_site: LiveSite, page: str) -> None:
    pages.visit(page, busy_site.token)
    selector, text = PAGE_CONTENT[page]
    pages.until_text(selector, text)
    pages.until(
        lambda: not pages.driver.execute_script(FIELDS_WITHOUT_NAME), "a name for each field"
    )


VERTICAL_EXTENT = """const box = document.querySelector(arguments[0]).getBoundingClientRect();
    return [box.top, box.bottom];"""
TRUNCATED_TEXTS = """const shown = (each) => each.checkVisibility();
    return [...document.querySelectorAll(arguments[0])].filter((each) => shown(each)
    && each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent);"""
COLUMNS = """return [...document.querySelectorAll("#subscriptions .ag-header-cell")]
    .map((each) => each.getAttribute("col-id"));"""


def test_tablet_shows_the_most_important_values_first(pages: Pages, busy_site: LiveSite) -> None:
    run = pages.driver.execute_script
    with pages.screen_size(768, 1024):
        pages.visit("", busy_site.token)
        pages.until_text("#alerts", "not configured")
        pages.until(lambda: pages.text("#verdict") not in ("", "Loading"), "a verdict")
        verdict, alerts, figures = (
            run(VERTICAL_EXTENT, f"#{name}") for name in ("verdict", "alerts", "figures")
        )
        assert run(VERTICAL_EXTENT, "header")[1] < 110, "at most two lines"
        assert verdict[1] < alerts[0] < alerts[1] < figures[0]
        assert run(VERTICAL_EXTENT, "#alerts li")[1] < 350, "visible without scrolling"
        pages.follow_link("subscriptions")
        pages.until(lambda: pages.cell(ALARM, "delay_p95_seconds"), "the measured delay")
        pages.until(lambda: "weight" not in run(COLUMNS), "fewer columns")
        most_important = {"late_rank", "priority", "filter", "subscriber", "delay_p95_seconds"}
        assert set(run(COLUMNS)) >= {*most_important, "predicted_delay_p95_seconds", "success_rate"}
        pages.until(
            lambda: not run(TRUNCATED_TEXTS, "#subscriptions .ag-center-cols-viewport"),
            "no truncated column",
        )
        cells = "#subscriptions .ag-header-cell-text, #subscriptions .ag-cell"
        pages.until(lambda: not run(TRUNCATED_TEXTS, cells), "no truncated cell")
        top, bottom = run(VERTICAL_EXTENT, "#subscriptions")
        rows = run("return document.querySelectorAll('#subscriptions .ag-row').length;")
        assert bottom - top < 42 * rows + 100, "the table is as high as its rows"
    pages.until(lambda: "weight" in run(COLUMNS), "all columns on a wide screen")


@pytest.mark.refused("net::ERR_")
def test_page_reconnects_after_a_restart_of_the_service(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
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
