"""Page objects of the dashboard in a browser; every action waits for a condition."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.support.waiting import wait_until

TIMEOUT_SECONDS = 90
T = TypeVar("T")

BUSY = '() => Promise.resolve(new Response(\'{"error": "busy"}\', {status: 503}))'
"""A replacement of `fetch` that answers 503."""
ALARM, CAMERA = "crew-1 alarm/#", "crew-1 camera/#"
"""Subscriptions of the watched site."""


class Pages:
    """The pages of one service."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.url = driver, url

    def visit(self, page: str = "", token: str | None = None) -> None:
        """Open a page, signed in with ``token``."""
        if token is None:
            self.driver.get(f"{self.url}/dashboard/{page}")
            return
        # Set the token before any script of the page runs with an earlier one.
        source = f"sessionStorage.clear(); sessionStorage.setItem('firedex-token', '{token}');"
        script = self.driver.execute_cdp_cmd(
            "Page.addScriptToEvaluateOnNewDocument", {"source": source}
        )
        self.driver.get(f"{self.url}/dashboard/{page}")
        self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)

    def follow_link(self, page: str) -> None:
        """Follow the link in the header."""
        self.click(f"to-{page}")

    def until(self, found: Callable[[], T], what: str) -> T:
        """Wait until ``found`` returns a true value; elements that are replaced are retried."""

        def attempt() -> T | None:
            try:
                return found()
            except WebDriverException:
                return None

        return wait_until(attempt, what, TIMEOUT_SECONDS, poll_seconds=0.05)

    def text(self, selector: str) -> str:
        """Return the text of the first matching element; empty if there is none."""
        script = "return document.querySelector(arguments[0])?.textContent ?? '';"
        return str(self.driver.execute_script(script, selector))

    def until_text(self, selector: str, part: str) -> str:
        return self.until(
            lambda: text if part in (text := self.text(selector)) else "",
            f"{part!r} in {selector}",
        )

    def click(self, name: str) -> None:
        def click_once() -> bool:
            self._press(By.ID, name)
            return True

        self.until(click_once, f"a click on {name}")

    def _press(self, by: str, what: str) -> None:
        """Click in the middle of the window, where the fixed header does not cover the element."""
        found = self.driver.find_element(by, what)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'});", found)
        found.click()

    def type(self, name: str, text: str) -> None:
        """Replace the text of a field; ``text`` may end with a key such as Enter."""

        def type_once() -> bool:
            field = self.driver.find_element(By.ID, name)
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(Keys.DELETE)
            field.send_keys(text.rstrip(Keys.ENTER))
            return field.get_attribute("value") == text.rstrip(Keys.ENTER)

        self.until(type_once, f"{text!r} in {name}")
        if text.endswith(Keys.ENTER):
            self.driver.find_element(By.ID, name).send_keys(Keys.ENTER)

    def tab_until(self, wanted: set[str], most: int = 60) -> None:
        """Press Tab until all of these elements have had the focus."""
        missing = set(wanted)
        for _ in range(most):
            # Send the key to the page: a field that was just hidden may still have the focus.
            ActionChains(self.driver).send_keys(Keys.TAB).perform()
            # In one script: the page may replace the element between two requests to the browser.
            missing.discard(str(self.driver.execute_script("return document.activeElement?.id;")))
            if not missing:
                return
        raise AssertionError(f"not reached by Tab: {sorted(missing)}")

    def cell(self, row: str, column: str) -> str:
        """Return a cell of the table of subscriptions; ``row``: subscriber and filter."""
        return self.text(f'#subscriptions .ag-row[row-id="{row}"] [col-id="{column}"]').strip()

    def select_row(self, row: str) -> None:
        selector = f'#subscriptions .ag-row[row-id="{row}"] [col-id="filter"]'

        def select_once() -> bool:
            self._press(By.CSS_SELECTOR, selector)
            subscriber, _, name = row.partition(" ")
            return self.text("#chosen") == f"{name} of {subscriber}"

        self.until(select_once, f"the choice of {row}")

    def class_figure(self, priority: int, column: str, table: str) -> str:
        return self.text(f'#{table} tr[data-class="{priority}"] td.{column}')

    def click_on(self, selector: str) -> None:
        def click_once() -> bool:
            self._press(By.CSS_SELECTOR, selector)
            return True

        self.until(click_once, f"a click on {selector}")

    def is_visible(self, name: str) -> bool:
        """Return whether an element with this id is visible."""
        script = "return document.getElementById(arguments[0])?.checkVisibility() ?? false;"
        return bool(self.driver.execute_script(script, name))

    def can_apply(self) -> bool:
        script = "return document.getElementById('apply')?.disabled === false;"
        return bool(self.driver.execute_script(script))

    def intercept(self, path: str, how: str) -> None:
        """Answer requests for ``path`` with a JavaScript function that gets the real ``fetch``."""
        script = f"""
            window.realFetch ??= window.fetch;
            const path = arguments[0], how = {how};
            window.fetch = (url, options) => String(url).startsWith(path)
              ? how(() => window.realFetch(url, options)) : window.realFetch(url, options);"""
        self.driver.execute_script(script, path)

    def stop_intercepting(self) -> None:
        """Send all requests to the service again."""
        self.driver.execute_script("window.fetch = window.realFetch ?? window.fetch;")

    def set_time_zone(self, name: str) -> None:
        """Set the time zone of the browser; an empty name restores the default."""
        self.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": name})

    @contextmanager
    def screen_size(self, width: int, height: int) -> Iterator[None]:
        """Set the exact size of the screen."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def height(self) -> int:
        """Return the height of the whole page."""
        return int(self.driver.execute_script("return document.documentElement.scrollHeight;"))

    def wait_until_stable(self) -> None:
        """Wait until two consecutive screenshots are equal."""
        last = [b""]

        def same() -> bool:
            now = self.driver.get_screenshot_as_png()
            before, last[0] = last[0], now
            return now == before

        self.until(same, "a page that no longer changes")
