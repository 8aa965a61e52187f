"""The command line before Java starts: help, errors, exit codes."""

import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has none

from firedex.wire import to_plain
from firedex_spark import job_command, session
from firedex_spark.command import spark
from firedex_spark.records.generated import RecordParameters, write_generated_records
from firedex_spark.schemas import FEEDBACK_SCHEMA
from firedex_spark.session import spark_error_message, warn_if_no_worker
from tests.spark.simulated_deliveries import four_classes

JOBS = ["fit-utility-weights", "calibrate", "plan-sites", "simulate-sweep"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(spark, arguments)


@pytest.fixture
def feedback(tmp_path: Path) -> Path:
    file = tmp_path / "feedback.parquet"
    pq.write_table(FEEDBACK_SCHEMA.empty_table(), file)
    return file


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    file = tmp_path / "planned.yaml"
    file.write_text(yaml.safe_dump({k: v for k, v in to_plain(four_classes()).items() if v}))
    return file


@pytest.mark.parametrize("job", JOBS)
def test_help_describes_input_output_and_exit_codes(job: str) -> None:
    text = " ".join(run(job, "--help").output.split())
    assert f"Example: firedex spark {job}" in text
    assert "Writes" in text
    assert "xit code" in text
    assert "--out" in text


def test_group_help_lists_exit_codes() -> None:
    text = " ".join(run("--help").output.split())
    assert "0 = complete" in text
    assert "1 = complete, but a problem was found" in text
    assert "2 = not complete" in text


@pytest.mark.parametrize(
    ("option", "given", "text"),
    [
        ("--memory", "lots", "'lots' is not valid; example: 4g"),
        ("--memory", "0g", "'0g' is not valid; example: 4g"),
        ("--master", "nowhere", "'nowhere' is not valid; example: spark://HOST:PORT"),
    ],
)
def test_invalid_spark_options_are_rejected(
    feedback: Path, tmp_path: Path, option: str, given: str, text: str
) -> None:
    out = str(tmp_path / "out")
    found = run("fit-utility-weights", str(feedback), "--out", out, option, given)
    assert found.exit_code == 2
    assert text in found.output


def test_missing_java_is_reported(
    feedback: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = run("fit-utility-weights", str(feedback), "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert "Spark needs Java 17 or newer" in found.output
    assert not list((tmp_path / "out").iterdir())


def failing_session(error: Exception) -> Any:
    @contextmanager
    def failing(*_given: object, **_more: object) -> Any:
        raise error
        yield

    return failing


def test_spark_error_is_printed_as_one_line(
    feedback: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Py4JError("o1.x\n\tat org.apache.Spark(1)\nCaused by: java.io.IOException: disk full\n")
    monkeypatch.setattr(job_command, "spark_session", failing_session(error))
    found = run("fit-utility-weights", str(feedback), "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert "Spark failed: java.io.IOException: disk full (set FIREDEX_SPARK_LOG" in found.output
    assert "\tat " not in found.output


def test_error_line_is_found_in_a_traceback() -> None:
    worker = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in work\nValueError: no good\n'
    )
    assert spark_error_message(RuntimeError(worker)) == "ValueError: no good"
    assert spark_error_message(RuntimeError("plain")) == "plain"
    assert spark_error_message(RuntimeError("")) == "RuntimeError"


class FakeCluster:
    """A fake session that reports its number of executors; the driver is one of them."""

    def __init__(self, master: str, executors: int) -> None:
        self.master, self._executors = master, executors
        self.sparkContext = self._jsc = self

    def sc(self) -> "FakeCluster":
        return self

    def statusTracker(self) -> "FakeCluster":  # Spark's
        return self

    def getExecutorInfos(self) -> list[int]:
        return [0] * self._executors

    def getConf(self) -> dict[str, str]:
        return {"spark.executor.memory": "3g"}


def test_cluster_without_workers_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for master, executors in (("local[2]", 1), ("spark://host:7077", 2)):
        warn_if_no_worker(cast(Any, FakeCluster(master, executors)))
    assert capsys.readouterr().err == ""
    warn_if_no_worker(cast(Any, FakeCluster("spark://host:7077", 1)))
    text = capsys.readouterr().err
    assert "no worker of spark://host:7077 has started an executor" in text
    assert "3g of memory (--memory)" in text
    assert text.count("\n") == 1


def test_output_folder_inside_the_input_is_rejected(tmp_path: Path) -> None:
    found = run("plan-sites", str(tmp_path), "--out", str(tmp_path / "plans"))
    assert found.exit_code == 2
    assert "is inside" in found.output


def test_unwritable_output_folder_is_named(feedback: Path) -> None:
    (feedback.parent / "file").touch()
    out = str(feedback.parent / "file" / "out")
    found = run("fit-utility-weights", str(feedback), "--out", out)
    assert found.exit_code == 2
    assert "cannot write into" in found.output
    found = run("generate", "fleet", "--sites", "1", "--out", out)
    assert found.exit_code == 2
    assert "cannot write" in found.output


def test_generated_files_replace_earlier_ones(tmp_path: Path) -> None:
    out, arguments = tmp_path / "out", ("generate", "records", "--sites", "1", "--out")
    truth = RecordParameters(sites=3)
    write_generated_records(truth, out, 300)
    (out / "records" / "site=site0" / "old.parquet").touch()
    (out / "mine.txt").touch()
    assert run(*arguments, str(out), "--rows", "100").exit_code == 0
    assert {path.name for path in out.iterdir()} == {"mine.txt", "predictions.parquet", "records"}
    assert [path.name for path in (out / "records").iterdir()] == ["site=site0"]
    assert len(list(out.rglob("*.parquet"))) == 2
    for nowhere in ("records", "feedback", "fleet"):
        found = run("generate", nowhere, "--out", "/proc/nope")
        assert (found.exit_code, "cannot write" in found.output) == (2, True), found.output


@pytest.mark.parametrize("given", ["nan", "-3", "inf", "-1"])
def test_invalid_drift_is_rejected(given: str, tmp_path: Path) -> None:
    found = run("generate", "records", "--drift", given, "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert "--drift" in found.output


def test_invalid_profiles_are_named(feedback: Path, tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps({"phase": 1}))
    arguments = ("--previous", str(file), "--out", str(tmp_path / "out"))
    found = run("fit-utility-weights", str(feedback), *arguments)
    assert found.exit_code == 2
    assert f"{file}: invalid profiles" in found.output


def test_calibration_requires_an_assignment(planned: Path, tmp_path: Path) -> None:
    plain = yaml.safe_load(planned.read_text())
    del plain["assignment"]
    planned.write_text(yaml.safe_dump(plain))
    found = run("calibrate", str(tmp_path), str(planned), "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert "has no assignment" in found.output
