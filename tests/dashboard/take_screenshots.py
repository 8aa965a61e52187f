"""Every page, light and dark, into docs/screenshots: run by ``make screenshots``."""

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / folder) for folder in ("service", "parts", "dashboard")]

from dashboard_pages import Pages  # noqa: E402  # found where the line above says
from tower_site import burning_tower  # noqa: E402

from firedex.dashboard_browser import headless_browser, missing_browser  # noqa: E402

TO = TESTS.parent / "docs" / "screenshots"
BARE = """
window.scrollTo(0, 0);
document.activeElement?.blur();
document.documentElement.style.overflow = "hidden";
"""
READY = {
    "now": ("#alerts", "floor 7 smoke"),
    "topology": ("#switch", "Queues"),
    "subscriptions": ("#preview", "served otherwise"),
    "history": ("#difference", "From plan"),
}


def prepare(pages: Pages, page: str) -> None:
    """What a visitor would do there first."""
    if page == "topology":
        pages.until_text("#switches .ag-center-cols-container", "floor-7")
        pages.click_on("#switches .ag-row[row-id='floor-7']")
    elif page == "subscriptions":
        pages.until_text("#subscriptions .ag-center-cols-container", "floor/7")
        pages.type("find", "engine")
        pages.choose("engine-7 floor/7/video")
        pages.type("weight", "400")
        pages.click("preview-change")
    elif page == "history":
        pages.until_text("#at-moment", "class 0")
        pages.click_on("#configurations .ag-row[row-index='0'] [col-id='reason']")


def main() -> None:
    """Take them all."""
    missing = missing_browser()
    if missing:
        sys.exit(f"screenshots: {missing}")
    TO.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        burning_tower(Path(folder)) as (running, report),
        headless_browser(1280, 1000) as driver,
    ):
        pages = Pages(driver, running.url)
        for theme in ("light", "dark"):
            pages.visit()
            driver.execute_script("localStorage.setItem('firedex-theme', arguments[0]);", theme)
            for page, (where, text) in READY.items():
                report()  # what is measured is what was reported lately
                pages.visit("" if page == "now" else page)
                prepare(pages, page)
                pages.until_text(where, text)
                pages.settle()  # what has come may still take its room
                driver.set_window_size(1280, pages.height() + 140)
                driver.execute_script(BARE)
                pages.settle()
                driver.save_screenshot(str(TO / f"{page}-{theme}.png"))
                driver.set_window_size(1280, 1000)
                print(f"docs/screenshots/{page}-{theme}.png")


if __name__ == "__main__":
    main()
