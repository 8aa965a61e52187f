"""The journal of a run: what is undone, by whom, and what is left alone. No switch, no root."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from firedex_emulation import run_journal
from firedex_emulation.process_identity import ProcessIdentity, boot_id
from firedex_emulation.run_journal import (
    JournalEntry,
    RunJournal,
    clean_up,
    state_folder,
)


@pytest.fixture(autouse=True)
def _journals_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIREDEX_STATE_FOLDER", str(tmp_path / "journals"))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def dead() -> ProcessIdentity:
    """A process that has been, and whose number somebody else may have by now."""
    return replace(ProcessIdentity.of_this_process(), started_ticks=1)


def leave_journal(**changes: object) -> Path:
    """As a run that was killed leaves it."""
    entry = replace(JournalEntry(run="died", boot=boot_id(), runner=dead()), **changes)  # type: ignore[arg-type]
    state_folder().mkdir(parents=True, exist_ok=True)
    path = state_folder() / f"{entry.run}.json"
    path.write_text(json.dumps(asdict(entry)))
    return path


def test_folders_go_with_the_run() -> None:
    with RunJournal() as journal:
        folder = journal.make_folder()
        (folder / "file").touch()
        (written,) = state_folder().glob("*.json")
        assert json.loads(written.read_text())["folders"] == [str(folder)]
    assert not folder.exists()
    assert not list(state_folder().iterdir())


def test_also_when_the_run_fails() -> None:
    made = []

    def interrupted() -> None:
        with RunJournal() as journal:
            made.append(journal.make_folder())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not made[0].exists()
    assert not list(state_folder().iterdir())


def test_the_next_run_removes_what_a_dead_one_has_left(tmp_path: Path) -> None:
    folder = tmp_path / f"{run_journal.FOLDER_PREFIX}1"
    folder.mkdir()
    leave_journal(folders=(str(folder),))
    said: list[str] = []
    with RunJournal(said.append):
        assert not folder.exists()
    assert said == [f"run died: removed {folder}"]


def test_two_runs_at_once_keep_to_their_own() -> None:
    with RunJournal() as first:
        second = RunJournal()
        second.entry = replace(second.entry, run="second")
        with second:
            folder = second.make_folder()
            first.__exit__(None, None, None)
            assert folder.exists()
        assert not folder.exists()


def test_what_a_dead_run_has_left_is_undone_and_said(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    folder = tmp_path / f"{run_journal.FOLDER_PREFIX}1"
    folder.mkdir()
    alive = ProcessIdentity.of(sleeper.pid)
    assert alive is not None
    journal = leave_journal(
        processes=(alive,),
        folders=(str(folder),),
    )
    said = clean_up()
    assert said == [
        f"run died: ended process {sleeper.pid}",
        f"run died: removed {folder}",
    ]
    assert sleeper.wait(timeout=5) < 0
    assert not folder.exists()
    assert not journal.exists()
    assert clean_up() == []


def test_a_process_that_only_has_the_number_is_left_alone(
    sleeper: subprocess.Popen[bytes],
) -> None:
    leave_journal(processes=(ProcessIdentity(pid=sleeper.pid, started_ticks=1),))
    assert clean_up() == ["run died: had left nothing but its journal"]
    assert sleeper.poll() is None


def test_a_live_run_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    alive = ProcessIdentity.of(sleeper.pid)
    assert alive is not None
    journal = leave_journal(
        runner=ProcessIdentity.of_this_process(),
        processes=(alive,),
    )
    assert clean_up() == []
    assert sleeper.poll() is None
    assert journal.exists()


def test_after_a_reboot_only_folders_are_left(tmp_path: Path) -> None:
    folder = tmp_path / f"{run_journal.FOLDER_PREFIX}1"
    folder.mkdir()
    leave_journal(
        boot="another",
        runner=ProcessIdentity.of_this_process(),
        processes=(ProcessIdentity.of_this_process(),),
        folders=(str(folder),),
    )
    assert clean_up() == [f"run died: removed {folder}"]


def test_folders_that_are_not_a_run_s_are_never_removed(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    leave_journal(folders=(str(folder), str(tmp_path)))
    clean_up()
    assert folder.exists()


def test_a_journal_that_cannot_be_read_is_named_and_kept() -> None:
    path = leave_journal()
    path.write_text("{")
    (said,) = clean_up()
    assert str(path) in said
    assert path.exists()


def test_remains_of_a_write_are_removed() -> None:
    path = leave_journal().with_suffix(".unfinished")
    path.write_text("{")
    clean_up()
    assert not path.exists()


def test_a_process_is_known_by_its_start() -> None:
    me = ProcessIdentity.of_this_process()
    assert me.pid == os.getpid()
    assert me.is_alive()
    assert not dead().is_alive()
    assert ProcessIdentity.of(2**22 + 1) is None
