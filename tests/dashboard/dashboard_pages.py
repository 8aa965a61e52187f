"""The dashboard in a browser, as a visitor uses it; conditions are awaited, never slept for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_SECONDS = 90
T = TypeVar("T")

BUSY = '() => Promise.resolve(new Response(\'{"error": "busy"}\', {status: 503}))'
"""A service that has no time, to whoever asks."""
ALARM, CAMERA = "crew-1 alarm/#", "crew-1 camera/#"
"""Subscriptions of the site that is watched."""


class Pages:
    """The pages of one service."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.url = driver, url

    def visit(self, page: str = "", token: str | None = None) -> None:
        """Go to a page as the bearer of ``token``, signed in already."""
        if token is None:
            self.driver.get(f"{self.url}/dashboard/{page}")
            return
        # Before any script of the page: none may ask with the token of whoever looked before.
        source = f"sessionStorage.clear(); sessionStorage.setItem('firedex-token', '{token}');"
        script = self.driver.execute_cdp_cmd(
            "Page.addScriptToEvaluateOnNewDocument", {"source": source}
        )
        self.driver.get(f"{self.url}/dashboard/{page}")
        self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)

    def go(self, page: str) -> None:
        """By the link in the header."""
        self.click(f"to-{page}")

    def until(self, found: Callable[[], T], what: str) -> T:
        waiting = WebDriverWait(
            self.driver,
            PATIENCE_SECONDS,
            poll_frequency=0.05,
            ignored_exceptions=[StaleElementReferenceException, WebDriverException],
        )
        return waiting.until(lambda _: found(), what)

    def text(self, selector: str) -> str:
        """The text of the first element there; empty if there is none."""
        script = "return document.querySelector(arguments[0])?.textContent ?? '';"
        return str(self.driver.execute_script(script, selector))

    def until_text(self, selector: str, part: str) -> str:
        return self.until(
            lambda: text if part in (text := self.text(selector)) else "",
            f"{part!r} in {selector}",
        )

    def click(self, name: str) -> None:
        def clicked() -> bool:
            self._press(By.ID, name)
            return True

        self.until(clicked, f"a click on {name}")

    def _press(self, by: str, what: str) -> None:
        """Where nothing lies over it: the header stays on top."""
        found = self.driver.find_element(by, what)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'});", found)
        found.click()

    def type(self, name: str, text: str) -> None:
        """Replace what stands there; ``text`` may end with a key."""

        def typed() -> bool:
            field = self.driver.find_element(By.ID, name)
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(Keys.DELETE)
            field.send_keys(text.rstrip(Keys.ENTER))
            return field.get_attribute("value") == text.rstrip(Keys.ENTER)

        self.until(typed, f"{text!r} in {name}")
        if text.endswith(Keys.ENTER):
            self.driver.find_element(By.ID, name).send_keys(Keys.ENTER)

    def tab_until(self, wanted: set[str], most: int = 60) -> None:
        """Press Tab until all of these elements have had the focus."""
        missing = set(wanted)
        for _ in range(most):
            # To the page, whatever has the focus: a field that was just hidden may still have it.
            ActionChains(self.driver).send_keys(Keys.TAB).perform()
            missing.discard(str(self.driver.switch_to.active_element.get_attribute("id")))
            if not missing:
                return
        raise AssertionError(f"not reached by Tab: {sorted(missing)}")

    def cell(self, row: str, column: str) -> str:
        """A cell of the table of subscriptions; ``row``: subscriber and filter."""
        return self.text(f'#subscriptions .ag-row[row-id="{row}"] [col-id="{column}"]').strip()

    def choose(self, row: str) -> None:
        selector = f'#subscriptions .ag-row[row-id="{row}"] [col-id="filter"]'

        def chosen() -> bool:
            self._press(By.CSS_SELECTOR, selector)
            subscriber, _, name = row.partition(" ")
            return self.text("#chosen") == f"{name} of {subscriber}"

        self.until(chosen, f"the choice of {row}")

    def class_figure(self, priority: int, column: str, table: str) -> str:
        return self.text(f'#{table} tr[data-class="{priority}"] td.{column}')

    def click_on(self, selector: str) -> None:
        def clicked() -> bool:
            self._press(By.CSS_SELECTOR, selector)
            return True

        self.until(clicked, f"a click on {selector}")

    def shown(self, name: str) -> bool:
        """Whether there is such an element to be seen."""
        script = "return document.getElementById(arguments[0])?.checkVisibility() ?? false;"
        return bool(self.driver.execute_script(script, name))

    def can_apply(self) -> bool:
        script = "return document.getElementById('apply')?.disabled === false;"
        return bool(self.driver.execute_script(script))

    def intercept(self, path: str, how: str) -> None:
        """Answer requests for ``path`` by a function of JavaScript of the real request."""
        script = f"""
            window.realFetch ??= window.fetch;
            const path = arguments[0], how = {how};
            window.fetch = (url, options) => String(url).startsWith(path)
              ? how(() => window.realFetch(url, options)) : window.realFetch(url, options);"""
        self.driver.execute_script(script, path)

    def let_through(self) -> None:
        """Answer no request here any more."""
        self.driver.execute_script("window.fetch = window.realFetch ?? window.fetch;")

    def zone(self, name: str) -> None:
        """Be somewhere else; nowhere in particular if it is empty."""
        self.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": name})

    @contextmanager
    def screen(self, width: int, height: int) -> Iterator[None]:
        """A screen of exactly this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def height(self) -> int:
        """Of the whole page."""
        return int(self.driver.execute_script("return document.documentElement.scrollHeight;"))

    def settle(self) -> None:
        """Wait until two pictures in a row are the same."""
        last = [b""]

        def same() -> bool:
            now = self.driver.get_screenshot_as_png()
            before, last[0] = last[0], now
            return now == before

        self.until(same, "a page that stands still")
