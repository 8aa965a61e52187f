"""One browser for all tests, and two sites: one where events flow, one where nobody publishes."""

from collections.abc import Iterator

import pytest
from live_site import LiveSite, live_site
from selenium import webdriver

from firedex.dashboard_browser import headless_browser, missing_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    missing = missing_browser()
    if missing:
        pytest.skip(missing)
    with headless_browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    with live_site(tmp_path_factory.mktemp("busy"), publishing=True) as site:
        site.subscriber("crew-1", alarm=10.0, camera=1.0)
        yield site


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    with live_site(tmp_path_factory.mktemp("quiet"), publishing=False) as site:
        site.subscriber("crew-1", alarm=10.0, camera=1.0)
        site.subscriber("crew-2", alarm=10.0, camera=1.0)
        yield site
