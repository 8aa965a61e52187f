"""Fixtures and set-up that all tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.loopback_parts import (
    fresh_address,
    mosquitto,
)

ROOT = Path(__file__).parent.parent
KERNELS = (ROOT / "firedex" / "planning", ROOT / "models" / "firedex_models" / "simulation")

# An example may take any time: a busy machine must not fail a test.
settings.register_profile("firedex", deadline=None)
settings.load_profile("firedex")


def pytest_configure(config: pytest.Config) -> None:
    """Delete compiled functions that are older than any source they may have been inlined from.

    Numba only compares the file that a function is in, not the files of functions that it calls.
    """
    if hasattr(config, "workerinput"):
        return
    for folder in KERNELS:
        newest = max(source.stat().st_mtime for source in folder.glob("*.py"))
        for compiled in (folder / "__pycache__").glob("*.nb[ic]"):
            if compiled.stat().st_mtime < newest:
                compiled.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the port of a real Mosquitto."""
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


@pytest.fixture
def address() -> str:
    """Return a loopback address that no other test uses."""
    return fresh_address()


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"
