"""What is said when all is well, and only then: in a real browser, with the fake controller."""

from collections.abc import Iterator

import pytest
from dashboard_pages import Pages
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from well_site import WellSite, well_site

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.usefixtures("nothing_leaves")]

NEVER = """
const real = window.fetch;
window.fetch = (url, options) => String(url).startsWith("/v1/overview")
  ? new Promise(() => {}) : real(url, options);
"""


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WellSite]:
    with well_site(tmp_path_factory.mktemp("well")) as site:
        yield site


@pytest.fixture
def pages(browser: webdriver.Chrome, well: WellSite) -> Pages:
    well.report()
    return Pages(browser, well.url)


def verdict(pages: Pages) -> tuple[str, str]:
    look = "return document.getElementById('verdict').className;"
    return str(pages.driver.execute_script(look)), pages.text("#verdict")


def test_all_is_well_is_said_when_it_is(pages: Pages, well: WellSite) -> None:
    pages.visit("", "")
    pages.until_text("#alerts", "Nothing to say")
    assert verdict(pages) == ("verdict good", "All is well")
    well.controller.mood = "away"
    try:
        pages.until(lambda: "Nothing to say" not in pages.text("#alerts"), "no all-clear any more")
        pages.until_text("#alerts", "controller")
        look, words = verdict(pages)
        assert look != "verdict good"
        assert "well" not in words
    finally:
        well.controller.mood = "willing"
    well.report()
    pages.until_text("#verdict", "All is well")


def test_no_all_clear_before_it_is_known(pages: Pages) -> None:
    """All is well; until the service has said so, the page does not."""
    driver = pages.driver
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NEVER})
    try:
        pages.visit("", "")
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    pages.until_text("#staleness", "an answer is awaited")
    assert pages.text("#alerts") == ""
    assert verdict(pages) == ("verdict unknown", "Not known yet")


def test_a_moment_is_chosen_by_keyboard(pages: Pages, well: WellSite) -> None:
    moments = "return firedex.state.moments?.length ?? 0;"
    pages.visit("history", "")
    pages.until_text("#at-moment", "class 0")

    def several() -> bool:
        well.report()
        return int(pages.driver.execute_script(moments)) > 2

    pages.until(several, "some moments")
    thumb = pages.driver.find_element(By.CSS_SELECTOR, "#page-history [role=slider]")
    assert thumb.accessible_name.startswith("Moment: ")
    last = pages.text("#moment-label")
    thumb.send_keys(Keys.ARROW_LEFT)
    pages.until_text("#moment-label", "chosen")
    assert pages.text("#moment-label").partition(",")[0] < last
    thumb.send_keys(Keys.END)
    pages.until(lambda: "chosen" not in pages.text("#moment-label"), "the last one again")


def test_the_validation_report_is_opened(pages: Pages) -> None:
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
def test_without_a_validation_report_that_is_said(pages: Pages, well: WellSite) -> None:
    pages.visit("history", "")
    pages.until_text("#at-moment", "class 0")
    away = well.validation_report.rename(well.validation_report.with_suffix(".away"))
    try:
        pages.click("open-report")
        pages.until_text("#refusal", "there is no validation report")
    finally:
        away.rename(well.validation_report)
