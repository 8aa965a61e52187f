"""Results are published completely or not at all, and never inside the input."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex_spark.errors import OutputInUse, UnwritableOutput
from firedex_spark.output_folder import atomic_results, write_table

RESULTS = ("data", "more.json", "report.html")


def fill(folder: Path, text: str) -> None:
    (folder / "data").mkdir()
    for name in ("data/part", "more.json", "report.html"):
        (folder / name).write_text(text)


def texts(out: Path) -> dict[str, str]:
    files = (path for path in sorted(out.rglob("*")) if path.is_file())
    return {str(path.relative_to(out)): path.read_text() for path in files}


def test_results_replace_only_earlier_results(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for text in ("old", "new"):
        with atomic_results(tmp_path, RESULTS, []) as folder:
            fill(folder, text)
            (folder / "data" / f"only-{text}").touch()
    expected = {"data/part": "new", "more.json": "new", "report.html": "new"}
    assert texts(tmp_path) == expected | {"data/only-new": "", "notes.txt": "mine"}


def test_failed_job_keeps_earlier_results(tmp_path: Path) -> None:
    with atomic_results(tmp_path, RESULTS, []) as folder:
        fill(folder, "old")
    before = texts(tmp_path)
    with pytest.raises(FileNotFoundError), atomic_results(tmp_path, RESULTS, []) as folder:
        (folder / "nowhere" / "more.json").write_text("new")
    assert texts(tmp_path) == before


def test_next_run_removes_files_of_a_killed_job(tmp_path: Path) -> None:
    """Kill a process, which leaves its unfinished folder."""
    out = tmp_path / "out"
    program = (
        "import os, pathlib, sys; from firedex_spark.output_folder import atomic_results\n"
        "with atomic_results(pathlib.Path(sys.argv[1]), ['report.html'], []) as folder:\n"
        "    (folder / 'half').write_text('of something'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program, out], check=False).returncode == 9
    assert list(texts(out).values()) == ["of something"]
    with atomic_results(out, RESULTS, []) as folder:
        fill(folder, "new")
    assert set(texts(out)) == {"data/part", "more.json", "report.html"}


def test_last_result_exists_only_if_all_are_of_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with atomic_results(tmp_path, RESULTS, []) as folder:
        fill(folder, "old")
    replace = Path.replace

    def fail_on_data(self: Path, target: Path) -> Path:
        if self.name == "more.json":
            raise OSError("killed")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_on_data)
    with pytest.raises(OSError, match="killed"), atomic_results(tmp_path, RESULTS, []) as folder:
        fill(folder, "new")
    assert not (tmp_path / "report.html").exists()


def test_output_inside_the_input_is_rejected(tmp_path: Path) -> None:
    source = tmp_path / "feedback"
    source.mkdir()
    for out in (source, source / "out"):
        with (
            pytest.raises(OutputInUse, match="is inside"),
            atomic_results(out, RESULTS, [source]),
        ):
            pass
    assert not (source / "out").exists()
    with (
        pytest.raises(OutputInUse, match="where data would be written"),
        atomic_results(tmp_path, RESULTS, [tmp_path / "data" / "fleet.parquet"]),
    ):
        pass
    with atomic_results(tmp_path, RESULTS, [source]) as folder:
        fill(folder, "beside")


def test_two_jobs_cannot_use_one_folder(tmp_path: Path) -> None:
    with (
        atomic_results(tmp_path, RESULTS, []),
        pytest.raises(OutputInUse, match="another job"),
        atomic_results(tmp_path, RESULTS, []),
    ):
        pass


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UnwritableOutput, match="cannot write into"),
        atomic_results(tmp_path / "file" / "out", RESULTS, []),
    ):
        pass


def test_table_replaces_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    for value in (1, 2):
        write_table(file, pa.table({"value": [value]}))
    assert pq.read_table(file).to_pydict() == {"value": [2]}
    assert list(tmp_path.iterdir()) == [file]
