"""Fixtures of the service tests: a fake controller, and a state on each kind of database."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from firedex.service.running import RunningService
from tests.support.fake_controller import FakeController, running_controller
from tests.support.postgres import postgresql
from tests.support.service_site import Client, serving

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="firedex-pg-") as folder,
        postgresql(Path(folder)) as url,
    ):
        yield url


@pytest.fixture
def new_postgres_state(postgres_url: str) -> Callable[[], str]:
    def make() -> str:
        name = f"state{next(_numbers)}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return postgres_url.replace("/postgres?", f"/{name}?")

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a new state; every test with this fixture runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return str(tmp_path / "state.sqlite")
    make: Callable[[], str] = request.getfixturevalue("new_postgres_state")
    return make()


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def controller_url(controller: FakeController) -> Iterator[str]:
    with running_controller(controller) as url:
        yield url


@pytest.fixture
def running(tmp_path: Path, controller_url: str) -> Iterator[RunningService]:
    """Run a service without tokens, on SQLite, with the fake controller."""
    with serving(tmp_path / "state.sqlite", controller=controller_url) as service:
        yield service


@pytest.fixture
def client(running: RunningService) -> Client:
    return Client(running.url)
