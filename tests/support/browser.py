"""A headless Chromium that stays on this machine, for tests, screenshots and the benchmark."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

__all__ = ["console_errors", "headless_browser", "missing_browser_reason", "requested_addresses"]

OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
)


def missing_browser_reason() -> str | None:
    """Return which program is not installed; None if all are."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed (apt-get install chromium chromium-driver)"
    return None


@contextmanager
def headless_browser(width: int = 1280, height: int = 900) -> Iterator[webdriver.Chrome]:
    """Run a browser with an empty profile that logs its requests and console errors."""
    with tempfile.TemporaryDirectory(prefix="firedex-browser-") as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for option in (*OPTIONS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(option)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(
            options=options, service=Service(shutil.which("chromedriver") or "")
        )
        try:
            yield driver
        finally:
            driver.quit()


def console_errors(driver: webdriver.Chrome) -> list[str]:
    """Return the console errors since the last call."""
    entries: list[dict[str, Any]] = driver.get_log("browser")
    return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]


def requested_addresses(driver: webdriver.Chrome) -> list[str]:
    """Return the requested addresses since the last call, without ``data:`` addresses."""
    addresses = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            address = str(message["params"]["request"]["url"])
            if not address.startswith(("data:", "blob:", "chrome:", "about:")):
                addresses.append(address)
    return addresses
