"""Filters of persistent sessions in the state file: restarts, expiry and damaged files."""

import sqlite3
from pathlib import Path

import pytest

from firedex.gateway.interest_store import InterestStore, StateFileError
from tests.support.interest_site import Client, Site, resumed


@pytest.fixture
def site() -> Site:
    return Site()


def test_persistent_sessions_survive_a_restart(site: Site) -> None:
    Client(site, "clean").subscribe(("heat", 1))
    client = Client(site, clean=False, expiry=60)
    client.subscribe(("smoke", 1), ("$share/crew/co", 2), ("gone", 0))
    client.unsubscribe("gone")
    site.restart()
    assert site.filters() == {("smoke", 1): 1, ("co", 2): 1}
    resumed(site).unsubscribe("$share/crew/co")
    assert (site.filters(), site.unknown) == ({("smoke", 1): 1}, 0)
    site.restart()
    assert site.filters() == {("smoke", 1): 1}


def test_session_expires_across_restarts(site: Site) -> None:
    client = Client(site, clean=False, expiry=60)
    client.subscribe(("smoke", 1))
    client.disconnect()
    site.clock.now += 40
    site.restart()
    site.clock.now += 19
    assert site.filters() == {("smoke", 1): 1}
    site.restart()
    site.clock.now += 1
    assert site.filters() == {}
    site.restart()
    assert site.filters() == {}


def test_session_that_was_connected_expires_from_the_restart_on(site: Site) -> None:
    Client(site, clean=False, expiry=60).subscribe(("smoke", 1))
    site.restart()
    site.clock.now += 40
    site.restart()
    assert site.filters() == {("smoke", 1): 1}
    site.clock.now += 20
    assert site.filters() == {}


def test_wall_clock_that_was_set_back_keeps_no_session_longer_than_its_interval(
    site: Site,
) -> None:
    client = Client(site, clean=False, expiry=60)
    client.subscribe(("smoke", 1))
    client.disconnect()
    site.clock.now -= 900
    site.restart()
    site.clock.now += 60
    assert site.filters() == {}


@pytest.mark.parametrize("expiry", [0, 60])
def test_ended_session_is_not_restored(site: Site, expiry: int) -> None:
    client = Client(site, clean=False, expiry=60)
    client.subscribe(("smoke", 1))
    client.disconnect(expiry=expiry)
    if expiry:
        Client(site, clean=True)
    site.restart()
    assert site.filters() == {}


def test_session_that_becomes_persistent_is_stored_with_its_filters(site: Site) -> None:
    Client(site, clean=False).subscribe(("smoke", 1))
    resumed(site)
    site.restart()
    assert site.filters() == {("smoke", 1): 1}


def test_session_that_is_no_longer_persistent_is_not_restored(site: Site) -> None:
    Client(site, clean=False, expiry=60).subscribe(("smoke", 1))
    Client(site, clean=False, expiry=0, present=True).subscribe(("heat", 1))
    assert site.filters() == {("smoke", 1): 1, ("heat", 1): 1}
    site.restart()
    assert site.filters() == {}


def test_unknown_session_is_restored_as_unknown(site: Site) -> None:
    resumed(site)
    site.restart()
    assert site.unknown == 1
    resumed(site).subscribe(("smoke", 1))
    site.restart()
    assert site.unknown == 0


def test_all_sessions_are_written_again_after_a_failure(site: Site) -> None:
    Client(site, clean=False, expiry=60).subscribe(("smoke", 1))
    site.store.take_changes()  # a write that failed
    site.store.replace_all(list(site.table.stored_sessions()))
    site.restart()
    assert site.filters() == {("smoke", 1): 1}


# -- the state file --------------------------------------------------------------------------------


def test_damaged_state_file_is_renamed(tmp_path: Path) -> None:
    file = tmp_path / "gateway.sqlite"
    file.write_bytes(b"this is not a database, but long enough to look like one" * 20)
    store = InterestStore(file)
    assert store.load() == []
    store.close()
    assert (tmp_path / "gateway.sqlite.damaged").exists()
    InterestStore(file).close()


def test_state_file_in_use_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gateway.sqlite"
    first = InterestStore(file)
    with pytest.raises(StateFileError, match="locked"):
        InterestStore(file)
    first.close()
    InterestStore(file).close()


def test_state_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gateway.sqlite"
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StateFileError, match="version 99"):
        InterestStore(file)


def test_missing_folder_of_the_state_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match=r"none/gateway\.sqlite"):
        InterestStore(tmp_path / "none" / "gateway.sqlite")
