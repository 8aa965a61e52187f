"""The dashboard of a healthy site, in a real browser, with the fake controller."""

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.support.dashboard_pages import Pages
from tests.support.healthy_site import HealthySite
from tests.support.healthy_site import healthy_site as run_healthy_site

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.usefixtures("no_external_requests")]

NO_OVERVIEW_RESPONSE = """
const real = window.fetch;
window.fetch = (url, options) => String(url).startsWith("/v1/overview")
  ? new Promise(() => {}) : real(url, options);
"""


@pytest.fixture(scope="module")
def healthy_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HealthySite]:
    with run_healthy_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def pages(browser: webdriver.Chrome, healthy_site: HealthySite) -> Pages:
    healthy_site.report()
    return Pages(browser, healthy_site.url)


def verdict(pages: Pages) -> tuple[str, str]:
    style = "return document.getElementById('verdict').className;"
    return str(pages.driver.execute_script(style)), pages.text("#verdict")


def test_page_shows_all_is_well_only_for_a_healthy_site(
    pages: Pages, healthy_site: HealthySite
) -> None:
    pages.visit("", "")
    pages.until_text("#alerts", "No alerts")
    assert verdict(pages) == ("verdict good", "All is well")
    healthy_site.controller.behaviour = "switch missing"
    try:
        pages.until(lambda: "No alerts" not in pages.text("#alerts"), "an alert")
        pages.until_text("#alerts", "controller")
        style, words = verdict(pages)
        assert style != "verdict good"
        assert "well" not in words
    finally:
        healthy_site.controller.behaviour = "accepts"
    healthy_site.report()
    pages.until_text("#verdict", "All is well")


def test_page_shows_no_state_before_the_first_response(pages: Pages) -> None:
    """The site is healthy, but the page must not say so before the service has answered."""
    driver = pages.driver
    script = driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": NO_OVERVIEW_RESPONSE}
    )
    try:
        pages.visit("", "")
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    pages.until_text("#staleness", "waiting for a response")
    assert pages.text("#alerts") == ""
    assert verdict(pages) == ("verdict unknown", "Loading")


def test_moment_can_be_selected_by_keyboard(pages: Pages, healthy_site: HealthySite) -> None:
    moments = "return firedex.state.moments?.length ?? 0;"
    pages.visit("history", "")
    pages.until_text("#at-moment", "class 0")

    def has_several_moments() -> bool:
        healthy_site.report()
        return int(pages.driver.execute_script(moments)) > 2

    pages.until(has_several_moments, "some moments")
    thumb = pages.driver.find_element(By.CSS_SELECTOR, "#page-history [role=slider]")
    assert thumb.accessible_name.startswith("Time: ")
    thumb.send_keys(Keys.ARROW_LEFT)
    pages.until_text("#moment-label", "selected")
    # The label has a resolution of one second, in which several moments can fall.
    assert pages.driver.execute_script(
        "return firedex.state.chosenMoment < firedex.state.moments.at(-1);"
    )
    thumb.send_keys(Keys.END)
    pages.until(lambda: "selected" not in pages.text("#moment-label"), "the latest moment")


def test_validation_report_opens_in_a_new_tab(pages: Pages) -> None:
    pages.visit("history", "")
    pages.until_text("#at-moment", "class 0")
    first = pages.driver.current_window_handle
    pages.click("open-report")
    pages.until(lambda: len(pages.driver.window_handles) > 1, "another tab")
    (other,) = set(pages.driver.window_handles) - {first}
    pages.driver.switch_to.window(other)
    try:
        pages.until_text("p", "Predictions hold.")
    finally:
        pages.driver.close()
        pages.driver.switch_to.window(first)


@pytest.mark.refused("status of 404")
def test_missing_validation_report_is_reported(pages: Pages, healthy_site: HealthySite) -> None:
    pages.visit("history", "")
    pages.until_text("#at-moment", "class 0")
    moved_report = healthy_site.validation_report.rename(
        healthy_site.validation_report.with_suffix(".away")
    )
    try:
        pages.click("open-report")
        pages.until_text("#refusal", "there is no validation report")
    finally:
        moved_report.rename(healthy_site.validation_report)
