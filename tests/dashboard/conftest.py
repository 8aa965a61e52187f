"""One browser for all tests, and two sites: one where events flow, one where nobody publishes."""

from collections.abc import Iterator

import pytest
from dashboard_pages import Pages
from live_site import LiveSite, live_site
from selenium import webdriver

from firedex.dashboard_browser import (
    console_errors,
    headless_browser,
    missing_browser,
    requested_addresses,
)


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


@pytest.fixture
def nothing_leaves(browser: webdriver.Chrome, request: pytest.FixtureRequest) -> Iterator[None]:
    """No request leaves the machine, and no page complains of anything but what the test says."""
    browser.get("about:blank")  # the last page may be of a service that is gone
    requested_addresses(browser)
    console_errors(browser)
    yield
    outside = {a for a in requested_addresses(browser) if not a.startswith("http://127.0.0.1:")}
    assert not outside
    mark = request.node.get_closest_marker("refused")
    expected = mark.args if mark else ()
    told = console_errors(browser)
    assert [each for each in told if not any(part in each for part in expected)] == []


@pytest.fixture
def watching(browser: webdriver.Chrome, busy: LiveSite) -> Pages:
    return Pages(browser, busy.service.url)


@pytest.fixture
def deciding(browser: webdriver.Chrome, quiet: LiveSite) -> Pages:
    return Pages(browser, quiet.service.url)
