"""Schema revisions of the state on SQLite and PostgreSQL, and what the tables can hold."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, create_engine, func, insert, inspect, select, text

from firedex.service.errors import StateError
from firedex.service.state import tables
from firedex.service.state.configuration_store import ConfigurationStore
from firedex.service.state.database import Database, database_url
from firedex.service.state.migrations import REVISIONS, current_revision, upgrade
from tests.service.test_measured_rates import report
from tests.support.service_site import Client, serving

NEXT_REVISION = '''"""Add a table of radios."""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004", "0003"


def upgrade() -> None:
    op.create_table("radio", sa.Column("id", sa.Integer(), primary_key=True))
    op.add_column("host", sa.Column("radio", sa.Integer()))
'''


@pytest.fixture
def engine(state: str) -> Iterator[Engine]:
    made = create_engine(database_url(state))
    yield made
    made.dispose()


def test_new_state_has_the_latest_revision_and_the_tables(state: str, engine: Engine) -> None:
    Database(state).close()
    with engine.connect() as connection:
        assert current_revision(connection) == "0003"
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


def test_tokens_of_the_first_release_are_kept(state: str, engine: Engine, tmp_path: Path) -> None:
    versions = tmp_path / "first" / "versions"
    versions.mkdir(parents=True)
    baseline = REVISIONS / "versions" / "revision_0001_baseline.py"
    (versions / baseline.name).write_text(baseline.read_text())
    with engine.begin() as connection:
        upgrade(connection, versions.parent)
        assert current_revision(connection) == "0001"
        connection.execute(
            text(
                "INSERT INTO token (name, role, party, digest, created_seconds) "
                "VALUES ('crew', 'subscriber', 'engine1', 'x', 0)"
            )
        )
    database = Database(state)
    with database.reading() as connection:
        assert connection.execute(select(tables.token.c.client)).scalar() == "engine1"
    database.close()


def test_two_processes_open_the_same_state(state: str) -> None:
    first, second = Database(state), Database(state, must_exist=True)
    with first.writing() as connection:
        connection.execute(insert(tables.host).values(address="10.0.0.1", switch="s1"))
    with second.reading() as connection:
        assert connection.execute(select(tables.host.c.switch)).scalar() == "s1"
    first.close()
    second.close()


def test_database_with_tables_of_another_program_is_refused(state: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE form (number INTEGER NOT NULL)"))
    with pytest.raises(StateError, match=r"tables \(form\).*empty database"):
        Database(state)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["form"]


def test_revision_of_a_newer_release_is_refused(state: str, engine: Engine) -> None:
    Database(state).close()
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StateError, match=r"revision 9999.*latest revision is 0003"):
        Database(state)


def test_state_must_exist_for_commands_that_only_read_it(state: str) -> None:
    with pytest.raises(StateError, match="there is no state"):
        Database(state, must_exist=True)


def test_older_revision_is_upgraded_and_keeps_its_rows(
    state: str, engine: Engine, tmp_path: Path
) -> None:
    database = Database(state)
    with database.writing() as connection:
        connection.execute(insert(tables.host).values(address="10.0.0.1", switch="s1"))
    database.close()
    versions = tmp_path / "newer" / "versions"
    versions.mkdir(parents=True)
    for revision in (REVISIONS / "versions").glob("*.py"):
        (versions / revision.name).write_text(revision.read_text())
    (versions / "revision_0004_radios.py").write_text(NEXT_REVISION)
    with engine.begin() as connection:
        upgrade(connection, versions.parent)
        assert current_revision(connection) == "0004"
        hosts = connection.execute(text("SELECT address, radio FROM host")).all()
        assert [tuple(row) for row in hosts] == [("10.0.0.1", None)]
        assert "radio" in inspect(connection).get_table_names()
    with pytest.raises(StateError, match="revision 0004"):
        Database(state)


def test_statistics_are_numbered_beyond_32_bits(state: str) -> None:
    with serving(state) as running:
        with running.service.database.writing() as connection:
            connection.execute(
                insert(tables.statistic).values(
                    number=2**31, at_seconds=1.0, reporter="x", subscriber="x", flow=0, body="{}"
                )
            )
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.setval("statistic_number_seq", 2**31)))
        answer = Client(running.url).ask("POST", "/v1/statistics", [report(2**53, {})])
        assert answer.status == 202, answer.body


def test_null_characters_are_refused_with_the_field_name(state: str) -> None:
    """PostgreSQL cannot store them in text."""
    with serving(state) as running:
        client = Client(running.url)
        opened = client.ask("POST", "/v1/incident", {"title": "fire\0alarm"})
        assert (opened.status, opened.json["problems"][0]["path"]) == (400, "title")
        asked = client.get("/v1/statistics?subscriber=a%00b")
        assert (asked.status, "subscriber" in asked.json["error"]) == (400, True)
        store = ConfigurationStore(running.service.database)
        version = store.begin(through_change=0, reason="test", planned_seconds=0.0)
        store.fail(version, "the controller said \0")
        assert client.get("/v1/configurations").json[0]["error"].startswith("the controller said")
