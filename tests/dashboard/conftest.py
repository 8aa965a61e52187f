"""A browser for all tests, a site with publishers, and a site without publishers."""

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.support.browser import (
    console_errors,
    headless_browser,
    missing_browser_reason,
    requested_addresses,
)
from tests.support.live_site import LiveSite, live_site


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    missing = missing_browser_reason()
    if missing:
        pytest.skip(missing)
    with headless_browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def busy_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    with live_site(tmp_path_factory.mktemp("publishing"), publishing=True) as site:
        site.subscriber("crew-1", alarm=10.0, camera=1.0)
        yield site


@pytest.fixture(scope="module")
def quiet_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    with live_site(tmp_path_factory.mktemp("silent"), publishing=False) as site:
        site.subscriber("crew-1", alarm=10.0, camera=1.0)
        site.subscriber("crew-2", alarm=10.0, camera=1.0)
        yield site


@pytest.fixture
def no_external_requests(
    browser: webdriver.Chrome, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Check that pages request only the local host, and log only errors that the test expects."""
    browser.get("about:blank")  # the previous page may belong to a stopped service
    requested_addresses(browser)
    console_errors(browser)
    yield
    outside = {a for a in requested_addresses(browser) if not a.startswith("http://127.0.0.1:")}
    assert not outside
    mark = request.node.get_closest_marker("refused")
    expected = mark.args if mark else ()
    errors = console_errors(browser)
    assert [error for error in errors if not any(part in error for part in expected)] == []
