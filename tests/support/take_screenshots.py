"""Write screenshots of every page, light and dark, to docs/screenshots (``make screenshots``)."""

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / folder) for folder in ("service", "parts", "dashboard")]

from tests.support.browser import headless_browser, missing_browser_reason  # noqa: E402
from tests.support.dashboard_pages import Pages  # noqa: E402
from tests.support.tower_site import tower_with_incident  # noqa: E402

TARGET_FOLDER = TESTS.parent / "docs" / "screenshots"
HIDE_SCROLL_BAR_AND_FOCUS = """
window.scrollTo(0, 0);
document.activeElement?.blur();
document.documentElement.style.overflow = "hidden";
"""
READY = {
    "now": ("#alerts", "floor 7 smoke"),
    "topology": ("#switch", "Queues"),
    "subscriptions": ("#preview", "another class or drop rate"),
    "history": ("#difference", "From configuration"),
}


def prepare(pages: Pages, page: str) -> None:
    """Bring a page into the state that the screenshot shows."""
    if page == "topology":
        pages.until_text("#switches .ag-center-cols-container", "floor-7")
        pages.click_on("#switches .ag-row[row-id='floor-7']")
    elif page == "subscriptions":
        pages.until_text("#subscriptions .ag-center-cols-container", "floor/7")
        pages.type("find", "engine")
        pages.select_row("engine-7 floor/7/video")
        pages.type("weight", "400")
        pages.click("preview-change")
    elif page == "history":
        pages.until_text("#at-moment", "class 0")
        pages.click_on("#configurations .ag-row[row-index='0'] [col-id='reason']")


def main() -> None:
    """Take all screenshots."""
    missing = missing_browser_reason()
    if missing:
        sys.exit(f"screenshots: {missing}")
    TARGET_FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        tower_with_incident(Path(folder)) as (running, report),
        headless_browser(1280, 1000) as driver,
    ):
        pages = Pages(driver, running.url)
        for theme in ("light", "dark"):
            pages.visit()
            driver.execute_script("localStorage.setItem('firedex-theme', arguments[0]);", theme)
            for page, (where, text) in READY.items():
                report()  # pages show recent reports only
                pages.visit("" if page == "now" else page)
                prepare(pages, page)
                pages.until_text(where, text)
                pages.wait_until_stable()  # the layout may still change
                driver.set_window_size(1280, pages.height() + 140)
                driver.execute_script(HIDE_SCROLL_BAR_AND_FOCUS)
                pages.wait_until_stable()
                driver.save_screenshot(str(TARGET_FOLDER / f"{page}-{theme}.png"))
                driver.set_window_size(1280, 1000)
                print(f"docs/screenshots/{page}-{theme}.png")


if __name__ == "__main__":
    main()
