"""A planner outlives its database and its own faults, and never plans beside another."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from service_site import (
    QUICK,
    Client,
    publisher,
    serving,
    subscriber,
    wait_until,
    wait_until_in_force,
)
from sqlalchemy.exc import OperationalError

from firedex.service import planner_process
from firedex.service.configuration_store import ConfigurationStore
from firedex.service.database import PLANNER, Database
from firedex.service.errors import LockLost, PlannedElsewhere
from firedex.service.planner import Notice, Planner
from firedex.service.planner_process import PlannerProcess

CREW = subscriber("crew", {"smoke/1": 1.0})


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (OperationalError("BEGIN", {}, Exception("gone")), "the state cannot be used"),
        (LockLost(), "the planner's lock was lost"),
        (RuntimeError("nobody thought of it"), "RuntimeError: nobody thought of it"),
    ],
)
@pytest.mark.parametrize("where", ["restore", "step", "look_around"])
def test_a_planner_that_fails_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, fault: Exception, said: str
) -> None:
    def fails(_: object) -> bool:
        raise fault

    with monkeypatch.context() as broken:
        broken.setattr(Planner, where, fails)
        with serving(tmp_path / "s.sqlite") as running:
            client = Client(running.url)
            assert client.register(CREW, wait=0).status == 202
            wait_until(
                lambda: (client.get("/v1/status").json["trouble"] or {}).get("attempts", 0) > 1,
                "it is tried again",
            )
            assert said in client.get("/v1/ready").json["reasons"][-1]
            broken.undo()
            assert client.register(publisher("p0", {"smoke/1": 1.0})).status == 200
            wait_until(lambda: client.get("/v1/status").json["trouble"] is None, "all is well")


def test_a_planner_without_its_lock_does_not_plan(new_postgres_state: Callable[[], str]) -> None:
    """Its session is ended and somebody else takes the lock: it waits for its turn."""
    state = new_postgres_state()
    with (
        serving(state, pace=replace(QUICK, poll_seconds=1000.0)) as running,
        psycopg.connect(state, autocommit=True) as other,
    ):
        client = Client(running.url)
        version = client.register(CREW).json["version"]
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks "
            "WHERE locktype = 'advisory' AND objid = %s",
            (PLANNER,),
        )
        other.execute(f"SELECT pg_advisory_lock({PLANNER})")
        assert client.register(publisher("p0", {"smoke/1": 1.0}), wait=1).status == 202
        assert client.get("/v1/status").json["in_force_version"] == version
        other.execute(f"SELECT pg_advisory_unlock({PLANNER})")
        wait_until(lambda: client.get("/v1/status").json["pending_changes"] == 0, "its turn")


def test_a_planner_in_its_own_process_outlives_its_sessions(
    new_postgres_state: Callable[[], str],
) -> None:
    state = new_postgres_state()
    with (
        serving(state, planner="process") as running,
        psycopg.connect(state, autocommit=True) as other,
    ):
        client = Client(running.url)
        client.register(CREW, wait=0)
        wait_until_in_force(client)
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert client.register(publisher("p0", {"smoke/1": 1.0}), wait=0).status == 202
        wait_until_in_force(client)
        wait_until(lambda: client.get("/v1/status").json["trouble"] is None, "all is well")


def test_one_database_has_one_planner(state: str) -> None:
    first, second = Database(state), Database(state)
    with first.planners_lock() as check:
        check()
        with pytest.raises(PlannedElsewhere), second.planners_lock():
            pass
    with second.planners_lock() as check:
        check()
    first.close()
    second.close()


def test_a_second_service_on_the_state_has_its_changes_planned_and_sees_what_is_in_force(
    tmp_path: Path,
) -> None:
    quick = replace(QUICK, poll_seconds=1000.0, glance_seconds=0.05)
    with (
        serving(tmp_path / "s.sqlite", pace=quick) as plans,
        serving(tmp_path / "s.sqlite", pace=quick) as waits,
    ):
        first, second = Client(plans.url), Client(waits.url)
        assert second.register(CREW).status == 200
        assert first.register(publisher("p0", {"smoke/1": 1.0})).status == 200
        version = first.get("/v1/configuration").json["version"]
        wait_until(lambda: second.get("/v1/configuration").json["version"] == version, "seen")


def test_what_another_planner_gave_up_is_never_activated(tmp_path: Path) -> None:
    with serving(tmp_path / "s.sqlite") as running:
        Client(running.url).register(CREW)
        now = running.service.configurations.in_force()
        assert now is not None
        store = ConfigurationStore(running.service.database)
        version = store.begin(through_change=1, reason="late", planned_seconds=0.0)
        store.fail_unfinished()
        with pytest.raises(LockLost):
            store.activate(version, now.document, now.basis, 0.0)
        still = store.in_force()
        assert still is not None
        assert still.version == now.version


def test_a_notice_waits_for_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the last for a long time: without it the service would not know its version."""
    monkeypatch.setattr(planner_process, "RESTART_SECONDS", 0.01)
    answers = [OperationalError("BEGIN", {}, Exception("gone"))] * 3
    taken = []

    def take(notice: Notice) -> None:
        if answers:
            raise answers.pop()
        taken.append(notice)

    planner = PlannerProcess(None, take)  # type: ignore[arg-type]
    planner._pass_on(Notice(kind="in-force", version=7))
    assert [notice.version for notice in taken] == [7]
