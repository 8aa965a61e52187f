"""Results appear whole or not at all, and never in the midst of what is read."""

import subprocess
import sys
from pathlib import Path

import pytest

from firedex_spark.errors import OutputInUse, UnwritableOutput
from firedex_spark.output_folder import whole_results, write_whole

RESULTS = ("data", "more.json", "report.html")


def fill(folder: Path, text: str) -> None:
    (folder / "data").mkdir()
    for name in ("data/part", "more.json", "report.html"):
        (folder / name).write_text(text)


def texts(out: Path) -> dict[str, str]:
    files = (path for path in sorted(out.rglob("*")) if path.is_file())
    return {str(path.relative_to(out)): path.read_text() for path in files}


def test_results_replace_those_of_an_earlier_run_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for text in ("old", "new"):
        with whole_results(tmp_path, RESULTS, []) as folder:
            fill(folder, text)
            (folder / "data" / f"only-{text}").touch()
    wanted = {"data/part": "new", "more.json": "new", "report.html": "new"}
    assert texts(tmp_path) == wanted | {"data/only-new": "", "notes.txt": "mine"}


def test_a_job_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    with whole_results(tmp_path, RESULTS, []) as folder:
        fill(folder, "old")
    before = texts(tmp_path)
    with pytest.raises(FileNotFoundError), whole_results(tmp_path, RESULTS, []) as folder:
        (folder / "nowhere" / "more.json").write_text("new")
    assert texts(tmp_path) == before


def test_after_a_kill_the_next_run_clears_up(tmp_path: Path) -> None:
    """A killed process runs no code of ours: its unfinished folder stays."""
    out = tmp_path / "out"
    program = (
        "import os, pathlib, sys; from firedex_spark.output_folder import whole_results\n"
        "with whole_results(pathlib.Path(sys.argv[1]), ['report.html'], []) as folder:\n"
        "    (folder / 'half').write_text('of something'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program, out], check=False).returncode == 9
    assert list(texts(out).values()) == ["of something"]
    with whole_results(out, RESULTS, []) as folder:
        fill(folder, "new")
    assert set(texts(out)) == {"data/part", "more.json", "report.html"}


def test_the_last_result_is_there_only_if_all_others_are_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with whole_results(tmp_path, RESULTS, []) as folder:
        fill(folder, "old")
    replace = Path.replace

    def dies(self: Path, target: Path) -> Path:
        if self.name == "more.json":
            raise OSError("killed")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(OSError, match="killed"), whole_results(tmp_path, RESULTS, []) as folder:
        fill(folder, "new")
    assert not (tmp_path / "report.html").exists()


def test_output_inside_the_input_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "feedback"
    source.mkdir()
    for out in (source, source / "out"):
        with (
            pytest.raises(OutputInUse, match="is inside"),
            whole_results(out, RESULTS, [source]),
        ):
            pass
    assert not (source / "out").exists()
    with (
        pytest.raises(OutputInUse, match="where data is written"),
        whole_results(tmp_path, RESULTS, [tmp_path / "data" / "fleet.parquet"]),
    ):
        pass
    with whole_results(tmp_path, RESULTS, [source]) as folder:
        fill(folder, "beside")


def test_two_jobs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with (
        whole_results(tmp_path, RESULTS, []),
        pytest.raises(OutputInUse, match="another job"),
        whole_results(tmp_path, RESULTS, []),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UnwritableOutput, match="cannot write into"),
        whole_results(tmp_path / "file" / "out", RESULTS, []),
    ):
        pass


def test_a_text_is_written_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "{}")
    assert texts(tmp_path) == {"a.json": "{}"}
