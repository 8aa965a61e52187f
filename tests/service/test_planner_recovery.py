"""The planner recovers from database outages and failures, and never runs twice."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from firedex.service.errors import LockLost, PlannerAlreadyRunning
from firedex.service.planner import process
from firedex.service.planner.planner import Notice, Planner
from firedex.service.planner.process import PlannerProcess
from firedex.service.state.configuration_store import ConfigurationStore
from firedex.service.state.database import PLANNER, Database
from tests.support.service_site import (
    FAST_SCHEDULE,
    Client,
    publisher,
    serving,
    subscriber,
    wait_until,
    wait_until_active,
)

pytestmark = pytest.mark.slow

CREW = subscriber("crew", {"smoke/1": 1.0})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OperationalError("BEGIN", {}, Exception("gone")), "the state cannot be used"),
        (LockLost(), "the planner has lost its lock"),
        (RuntimeError("unexpected"), "RuntimeError: unexpected"),
    ],
)
@pytest.mark.parametrize("where", ["restore", "step", "refresh_topology"])
def test_planner_reports_a_failure_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, fault: Exception, message: str
) -> None:
    def raise_fault(_: object) -> bool:
        raise fault

    with monkeypatch.context() as broken:
        broken.setattr(Planner, where, raise_fault)
        with serving(tmp_path / "s.sqlite") as running:
            client = Client(running.url)
            assert client.register(CREW, wait=0).status == 202
            wait_until(
                lambda: (client.get("/v1/status").json["trouble"] or {}).get("attempts", 0) > 1,
                "a second attempt",
            )
            assert message in client.get("/v1/ready").json["reasons"][-1]
            broken.undo()
            assert client.register(publisher("p0", {"smoke/1": 1.0})).status == 200
            wait_until(lambda: client.get("/v1/status").json["trouble"] is None, "no error")


def test_planner_without_its_lock_does_not_plan(new_postgres_state: Callable[[], str]) -> None:
    """Another session takes the lock; the planner waits until the lock is free again."""
    state = new_postgres_state()
    with (
        serving(state, schedule=replace(FAST_SCHEDULE, poll_seconds=1000.0)) as running,
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
        assert client.get("/v1/status").json["active_version"] == version
        other.execute(f"SELECT pg_advisory_unlock({PLANNER})")
        wait_until(
            lambda: client.get("/v1/status").json["pending_changes"] == 0, "no pending changes"
        )


def test_planner_process_survives_terminated_database_sessions(
    new_postgres_state: Callable[[], str],
) -> None:
    state = new_postgres_state()
    with (
        serving(state, planner="process") as running,
        psycopg.connect(state, autocommit=True) as other,
    ):
        client = Client(running.url)
        client.register(CREW, wait=0)
        wait_until_active(client)
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert client.register(publisher("p0", {"smoke/1": 1.0}), wait=0).status == 202
        wait_until_active(client)
        wait_until(lambda: client.get("/v1/status").json["trouble"] is None, "no error")


def test_second_planner_cannot_acquire_the_lock(state: str) -> None:
    first, second = Database(state), Database(state)
    with first.planner_lock() as check:
        check()
        with pytest.raises(PlannerAlreadyRunning), second.planner_lock():
            pass
    with second.planner_lock() as check:
        check()
    first.close()
    second.close()


def test_second_service_on_the_same_state_gets_its_changes_planned(
    tmp_path: Path,
) -> None:
    quick = replace(FAST_SCHEDULE, poll_seconds=1000.0, change_check_seconds=0.05)
    with (
        serving(tmp_path / "s.sqlite", schedule=quick) as planning,
        serving(tmp_path / "s.sqlite", schedule=quick) as waiting,
    ):
        first, second = Client(planning.url), Client(waiting.url)
        assert second.register(CREW).status == 200
        assert first.register(publisher("p0", {"smoke/1": 1.0})).status == 200
        version = first.get("/v1/configuration").json["version"]
        wait_until(
            lambda: second.get("/v1/configuration").json["version"] == version, "the new version"
        )


def test_configuration_failed_by_another_planner_is_never_activated(tmp_path: Path) -> None:
    with serving(tmp_path / "s.sqlite") as running:
        Client(running.url).register(CREW)
        now = running.service.configurations.active()
        assert now is not None
        store = ConfigurationStore(running.service.database)
        version = store.begin(through_change=1, reason="late", planned_seconds=0.0)
        store.fail_unfinished()
        with pytest.raises(LockLost):
            store.activate(version, now.document, now.rate_snapshot, 0.0)
        active = store.active()
        assert active is not None
        assert active.version == now.version


def test_notice_is_retried_while_the_database_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the notice, the service would not know the active version."""
    monkeypatch.setattr(process, "RESTART_SECONDS", 0.01)
    errors = [OperationalError("BEGIN", {}, Exception("gone"))] * 3
    received = []

    def record_notice(notice: Notice) -> None:
        if errors:
            raise errors.pop()
        received.append(notice)

    planner = PlannerProcess(None, record_notice)  # type: ignore[arg-type]
    planner._handle_notice(Notice(kind="active", version=7))
    assert [notice.version for notice in received] == [7]
