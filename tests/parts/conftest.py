"""What the tests of the parts share: one broker for all of them, a fresh address for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_parts import FakeController, fresh_address, mosquitto, running_controller


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real Mosquitto."""
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


@pytest.fixture
def address() -> str:
    """A loopback address of this test's own."""
    return fresh_address()


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def controller_url(controller: FakeController) -> Iterator[str]:
    with running_controller(controller) as url:
        yield url


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"
