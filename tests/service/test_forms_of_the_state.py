"""From every older form to the present one, on both databases; and what each of them can hold."""

from collections.abc import Iterator

import pytest
from service_site import Client, serving
from sqlalchemy import Connection, Engine, create_engine, func, insert, inspect, select, text
from test_measured_rates import report

from firedex.service import form_1_tables as form_1
from firedex.service import migrations, tables
from firedex.service.class_history import history
from firedex.service.configuration_store import ConfigurationStore
from firedex.service.database import Database, database_url


@pytest.fixture
def engine(state: str) -> Iterator[Engine]:
    made = create_engine(database_url(state))
    yield made
    made.dispose()


def migrate_to(form: int, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(migrations, "STEPS", migrations.STEPS[:form])
        older.setattr(migrations, "FORM", form)
        migrations.migrate(connection)


def test_migrations_make_the_tables_that_are_stated(state: str, engine: Engine) -> None:
    Database(state).close()
    found = inspect(engine)
    for name, table in tables.metadata.tables.items():
        stated = {c.name: (c.type.compile(engine.dialect), c.nullable) for c in table.columns}
        made = {
            c["name"]: (c["type"].compile(engine.dialect), c["nullable"])
            for c in found.get_columns(name)
        }
        assert {n: (t.replace("FLOAT", "DOUBLE PRECISION"), x) for n, (t, x) in made.items()} == {
            n: (t.replace("FLOAT", "DOUBLE PRECISION"), x) for n, (t, x) in stated.items()
        }, name
        indexes = {each["name"] for each in found.get_indexes(name) if not each["unique"]}
        assert indexes == {index.name for index in table.indexes}, name


def test_form_1_is_brought_to_the_present_one_with_all_it_has(
    state: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"at_seconds": 1.0, "reporter": "crew", "subscriber": "crew", "flow": 1, "body": "{}"}
    with engine.begin() as connection:
        migrate_to(1, connection, monkeypatch)
        connection.execute(insert(form_1.statistic).values(**kept))
        connection.execute(insert(form_1.heartbeat).values(part="crew", at_seconds=1.0, body="{}"))
    database = Database(state)
    with database.writing() as connection:
        assert connection.execute(select(tables.heartbeat.c.party)).all() == [(None,)]
        connection.execute(insert(tables.statistic).values(**{**kept, "flow": 2**53}))
        flows = connection.execute(select(tables.statistic.c.flow).order_by("number")).scalars()
        assert list(flows) == [1, 2**53]
    database.close()


def test_form_3_is_brought_to_the_present_one_with_its_history(
    state: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.begin() as connection:
        migrate_to(3, connection, monkeypatch)
        connection.execute(
            text(
                "INSERT INTO class_history "
                "(at_seconds, priority, version, delivered, missing, timed, delay_sum_seconds) "
                "VALUES (10, 0, 1, 90, 10, 90, 9.0), (10, 1, 1, 50, 0, 0, 0.0)"
            )
        )
    database = Database(state)
    assert [(step.missing_events, step.success_rate) for step in history(database, 0, 20, 9)] == [
        (10, 0.9),
        (None, None),
    ]
    database.close()


def test_statistics_are_numbered_beyond_32_bits(state: str) -> None:
    with serving(state) as running:
        with running.service.database.writing() as connection:
            connection.execute(
                insert(tables.statistic).values(
                    number=2**31, at_seconds=1.0, reporter="x", subscriber="x", flow=0, body="{}"
                )
            )
            if connection.dialect.name == "postgresql":
                sequence = func.setval("statistic_number_seq", 2**31)
                connection.execute(select(sequence))
        answer = Client(running.url).ask("POST", "/v1/statistics", [report(2**53, {})])
        assert answer.status == 202, answer.body


def test_null_characters_are_refused_by_name(state: str) -> None:
    """PostgreSQL takes none in its texts."""
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
