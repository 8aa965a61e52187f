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
    ChangedSetting,
    JournalEntry,
    RunJournal,
    clean_up,
    state_folder,
)

NAME = "net.core.wmem_default"


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A sysctl of a made-up machine."""
    monkeypatch.setenv("FIREDEX_STATE_FOLDER", str(tmp_path / "journals"))
    monkeypatch.setattr(run_journal, "SETTINGS", tmp_path / "sys")
    path = tmp_path / "sys" / "net" / "core" / "wmem_default"
    path.parent.mkdir(parents=True)
    path.write_text("1000\n")
    return path


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


def test_a_setting_is_changed_for_as_long_as_the_run_lasts(setting: Path) -> None:
    with RunJournal() as journal:
        journal.change_setting(NAME, "5000")
        assert setting.read_text() == "5000"
        (written,) = state_folder().glob("*.json")
        assert json.loads(written.read_text())["settings"] == [
            {"name": NAME, "before": "1000", "during": "5000"}
        ]
    assert setting.read_text() == "1000"
    assert not list(state_folder().iterdir())


def test_also_when_the_run_fails(setting: Path) -> None:
    def interrupted() -> None:
        with RunJournal() as journal:
            journal.change_setting(NAME, "5000")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert setting.read_text() == "1000"
    assert not list(state_folder().iterdir())


def test_a_setting_that_cannot_be_changed_is_not_in_the_journal(setting: Path) -> None:
    with RunJournal() as journal:
        with pytest.raises(OSError, match="No such file"):
            journal.change_setting("net.core.nothing", "1")
        assert journal.entry.settings == ()
    assert setting.read_text() == "1000\n"


def test_folders_go_with_the_run(setting: Path) -> None:  # noqa: ARG001
    with RunJournal() as journal:
        folder = journal.make_folder()
        (folder / "file").touch()
    assert not folder.exists()


def test_what_a_dead_run_has_left_is_undone_and_said(
    setting: Path, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    folder = tmp_path / f"{run_journal.FOLDER_PREFIX}1"
    folder.mkdir()
    setting.write_text("5000")
    alive = ProcessIdentity.of(sleeper.pid)
    assert alive is not None
    journal = leave_journal(
        processes=(alive,),
        settings=(ChangedSetting(name=NAME, before="1000", during="5000"),),
        folders=(str(folder),),
    )
    said = clean_up()
    assert said == [
        f"run died: ended process {sleeper.pid}",
        f"run died: set {NAME} back to 1000",
        f"run died: removed {folder}",
    ]
    assert sleeper.wait(timeout=5) < 0
    assert setting.read_text() == "1000"
    assert not folder.exists()
    assert not journal.exists()
    assert clean_up() == []


def test_the_next_run_does_so_too(setting: Path) -> None:
    setting.write_text("5000")
    leave_journal(settings=(ChangedSetting(name=NAME, before="1000", during="5000"),))
    said: list[str] = []
    with RunJournal(said.append):
        assert setting.read_text() == "1000"
    assert said == [f"run died: set {NAME} back to 1000"]


def test_a_process_that_only_has_the_number_is_left_alone(
    setting: Path,  # noqa: ARG001
    sleeper: subprocess.Popen[bytes],
) -> None:
    leave_journal(processes=(ProcessIdentity(pid=sleeper.pid, started_ticks=1),))
    assert clean_up() == ["run died: had left nothing but its journal"]
    assert sleeper.poll() is None


def test_a_live_run_is_left_alone(setting: Path, sleeper: subprocess.Popen[bytes]) -> None:
    setting.write_text("5000")
    alive = ProcessIdentity.of(sleeper.pid)
    assert alive is not None
    journal = leave_journal(
        runner=ProcessIdentity.of_this_process(),
        processes=(alive,),
        settings=(ChangedSetting(name=NAME, before="1000", during="5000"),),
    )
    assert clean_up() == []
    assert sleeper.poll() is None
    assert setting.read_text() == "5000"
    assert journal.exists()


def test_two_runs_at_once_and_the_last_sets_it_back(setting: Path) -> None:
    with RunJournal() as first:
        first.change_setting(NAME, "5000")
        second = RunJournal()
        second.entry = replace(second.entry, run="second")
        with second:
            second.change_setting(NAME, "5000")
            first.__exit__(None, None, None)
            assert setting.read_text() == "5000", "the second relies on it"
        assert setting.read_text() == "1000"


def test_what_somebody_else_has_set_since_is_theirs(setting: Path) -> None:
    setting.write_text("7000")
    leave_journal(settings=(ChangedSetting(name=NAME, before="1000", during="5000"),))
    assert clean_up() == [f"run died: {NAME} is 7000, not ours any more: left alone"]
    assert setting.read_text() == "7000"


def test_after_a_reboot_only_folders_are_left(setting: Path, tmp_path: Path) -> None:
    folder = tmp_path / f"{run_journal.FOLDER_PREFIX}1"
    folder.mkdir()
    setting.write_text("5000")
    leave_journal(
        boot="another",
        runner=ProcessIdentity.of_this_process(),
        processes=(ProcessIdentity.of_this_process(),),
        settings=(ChangedSetting(name=NAME, before="1000", during="5000"),),
        folders=(str(folder),),
    )
    assert clean_up() == [f"run died: removed {folder}"]
    assert setting.read_text() == "5000"


def test_folders_that_are_not_a_run_s_are_never_removed(setting: Path, tmp_path: Path) -> None:  # noqa: ARG001
    folder = tmp_path / "mine"
    folder.mkdir()
    leave_journal(folders=(str(folder), str(tmp_path)))
    clean_up()
    assert folder.exists()


def test_a_journal_that_cannot_be_read_is_named_and_kept(setting: Path) -> None:  # noqa: ARG001
    path = leave_journal()
    path.write_text("{")
    (said,) = clean_up()
    assert str(path) in said
    assert path.exists()


def test_remains_of_a_write_are_removed(setting: Path) -> None:  # noqa: ARG001
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
