"""What the tests of gateway and clients share."""

from collections.abc import Iterator

import pytest
from loopback_parts import fresh_address, mosquitto


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real Mosquitto."""
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


@pytest.fixture
def address() -> str:
    """A loopback address of this test's own."""
    return fresh_address()
