"""Test the journal of a run: clean-up removes exactly what a killed run left. No root needed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from firedex_emulation.testbed import run_journal
from firedex_emulation.testbed.run_journal import (
    JournalEntry,
    ProcessIdentity,
    RunJournal,
    boot_id,
    clean_up,
    state_folder,
)


@pytest.fixture(autouse=True)
def _private_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIREDEX_STATE_FOLDER", str(tmp_path / "journals"))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def ended_process() -> ProcessIdentity:
    """Return a process that has ended; its id may have been reused."""
    return replace(ProcessIdentity.of_this_process(), started_ticks=1)


def leave_journal(**changes: object) -> Path:
    """Write the journal of a run that was killed."""
    entry = replace(JournalEntry(run="died", boot=boot_id(), runner=ended_process()), **changes)  # type: ignore[arg-type]
    state_folder().mkdir(parents=True, exist_ok=True)
    path = state_folder() / f"{entry.run}.json"
    path.write_text(json.dumps(asdict(entry)))
    return path


def test_folders_are_removed_with_the_run() -> None:
    with RunJournal() as journal:
        folder = journal.make_folder()
        (folder / "file").touch()
        (written,) = state_folder().glob("*.json")
        assert json.loads(written.read_text())["folders"] == [str(folder)]
    assert not folder.exists()
    assert not list(state_folder().iterdir())


def test_folders_are_removed_when_the_run_fails() -> None:
    folders = []

    def run_and_interrupt() -> None:
        with RunJournal() as journal:
            folders.append(journal.make_folder())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_and_interrupt()
    assert not folders[0].exists()
    assert not list(state_folder().iterdir())


def test_next_run_cleans_up_after_a_killed_one(tmp_path: Path) -> None:
    folder = tmp_path / f"{run_journal.FOLDER_PREFIX}1"
    folder.mkdir()
    leave_journal(folders=(str(folder),))
    messages: list[str] = []
    with RunJournal(messages.append):
        assert not folder.exists()
    assert messages == [f"run died: removed {folder}"]


def test_concurrent_runs_do_not_affect_each_other() -> None:
    with RunJournal() as first:
        second = RunJournal()
        second.entry = replace(second.entry, run="second")
        with second:
            folder = second.make_folder()
            first.__exit__(None, None, None)
            assert folder.exists()
        assert not folder.exists()


def test_clean_up_removes_and_lists_what_a_killed_run_left(
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
    messages = clean_up()
    assert messages == [
        f"run died: killed process {sleeper.pid}",
        f"run died: removed {folder}",
    ]
    assert sleeper.wait(timeout=60) < 0
    assert not folder.exists()
    assert not journal.exists()
    assert clean_up() == []


def test_process_with_a_reused_id_is_not_killed(
    sleeper: subprocess.Popen[bytes],
) -> None:
    leave_journal(processes=(ProcessIdentity(pid=sleeper.pid, started_ticks=1),))
    assert clean_up() == ["run died: nothing to remove except its journal"]
    assert sleeper.poll() is None


def test_clean_up_does_not_touch_an_active_run(sleeper: subprocess.Popen[bytes]) -> None:
    alive = ProcessIdentity.of(sleeper.pid)
    assert alive is not None
    journal = leave_journal(
        runner=ProcessIdentity.of_this_process(),
        processes=(alive,),
    )
    assert clean_up() == []
    assert sleeper.poll() is None
    assert journal.exists()


def test_clean_up_after_a_reboot_removes_folders_and_kills_no_process(tmp_path: Path) -> None:
    folder = tmp_path / f"{run_journal.FOLDER_PREFIX}1"
    folder.mkdir()
    leave_journal(
        boot="another",
        runner=ProcessIdentity.of_this_process(),
        processes=(ProcessIdentity.of_this_process(),),
        folders=(str(folder),),
    )
    assert clean_up() == [f"run died: removed {folder}"]


def test_folder_without_the_prefix_is_never_removed(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    leave_journal(folders=(str(folder), str(tmp_path)))
    clean_up()
    assert folder.exists()


def test_invalid_journal_is_reported_and_kept() -> None:
    path = leave_journal()
    path.write_text("{")
    (message,) = clean_up()
    assert str(path) in message
    assert path.exists()


def test_temporary_files_of_killed_writers_are_removed() -> None:
    journal = leave_journal()
    path = journal.with_name(f".{journal.name}.x1")
    path.write_text("{")
    clean_up()
    assert not path.exists()


def test_process_is_identified_by_its_start_time() -> None:
    this_process = ProcessIdentity.of_this_process()
    assert this_process.pid == os.getpid()
    assert this_process.is_alive()
    assert not ended_process().is_alive()
    assert ProcessIdentity.of(2**22 + 1) is None
