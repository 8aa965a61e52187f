"""What people meet at the jobs' command line before any Java runs: help, mistakes, exit codes."""

import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result
from py4j.protocol import Py4JError
from simulated_deliveries import four_classes

from firedex.wire import to_plain
from firedex_spark import job_command, session
from firedex_spark.command import spark
from firedex_spark.generated_records import RecordTruth, write_generated_records
from firedex_spark.schemas import FEEDBACK_SCHEMA
from firedex_spark.session import tell_if_alone, what_spark_says

JOBS = ["fit-utility-weights", "calibrate", "plan-sites", "simulate-sweep"]


def run(*words: str) -> Result:
    return CliRunner().invoke(spark, words)


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
def test_help_says_what_goes_in_what_comes_out_and_how_to_call_it(job: str) -> None:
    said = " ".join(run(job, "--help").output.split())
    assert f"Example: firedex spark {job}" in said
    assert "Writes" in said
    assert "xit code" in said
    assert "--out" in said


def test_the_exit_codes_are_in_the_help() -> None:
    said = " ".join(run("--help").output.split())
    assert "0 done" in said
    assert "1 done, and something is to be looked at" in said
    assert "2 not done" in said


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("--memory", "lots", "'lots' is not like 4g"),
        ("--memory", "0g", "'0g' is not like 4g"),
        ("--master", "nowhere", "'nowhere' is not like spark://HOST:PORT"),
    ],
)
def test_options_that_spark_would_choke_on_are_refused(
    feedback: Path, tmp_path: Path, option: str, given: str, said: str
) -> None:
    out = str(tmp_path / "out")
    found = run("fit-utility-weights", str(feedback), "--out", out, option, given)
    assert found.exit_code == 2
    assert said in found.output


def test_without_java_the_reason_is_told_and_nothing_is_left(
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
    def made(*_given: object, **_more: object) -> Any:
        raise error
        yield

    return made


def test_what_spark_raises_is_one_line(
    feedback: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Py4JError("o1.x\n\tat org.apache.Spark(1)\nCaused by: java.io.IOException: disk full\n")
    monkeypatch.setattr(job_command, "spark_session", failing_session(error))
    found = run("fit-utility-weights", str(feedback), "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert "Spark failed: java.io.IOException: disk full (FIREDEX_SPARK_LOG" in found.output
    assert "\tat " not in found.output


def test_the_line_that_says_what_happened_is_found() -> None:
    worker = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in work\nValueError: no good\n'
    )
    assert what_spark_says(RuntimeError(worker)) == "ValueError: no good"
    assert what_spark_says(RuntimeError("plain")) == "plain"
    assert what_spark_says(RuntimeError("")) == "RuntimeError"


class Cluster:
    """As much of a session as says how many take part; the driver is one of them."""

    def __init__(self, master: str, parts: int) -> None:
        self.master, self._parts = master, parts
        self.sparkContext = self._jsc = self

    def sc(self) -> "Cluster":
        return self

    def statusTracker(self) -> "Cluster":  # Spark's
        return self

    def getExecutorInfos(self) -> list[int]:
        return [0] * self._parts

    def getConf(self) -> dict[str, str]:
        return {"spark.executor.memory": "3g"}


def test_a_cluster_without_workers_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    for master, parts in (("local[2]", 1), ("spark://host:7077", 2)):
        tell_if_alone(Cluster(master, parts))
    assert capsys.readouterr().err == ""
    tell_if_alone(Cluster("spark://host:7077", 1))
    said = capsys.readouterr().err
    assert "no worker of spark://host:7077 has started anything" in said
    assert "3g of memory (--memory)" in said
    assert said.count("\n") == 1


def test_an_output_folder_in_the_midst_of_the_input_is_refused(tmp_path: Path) -> None:
    found = run("plan-sites", str(tmp_path), "--out", str(tmp_path / "plans"))
    assert found.exit_code == 2
    assert "is inside" in found.output


def test_an_output_folder_that_cannot_be_is_named(feedback: Path) -> None:
    (feedback.parent / "file").touch()
    out = str(feedback.parent / "file" / "out")
    found = run("fit-utility-weights", str(feedback), "--out", out)
    assert found.exit_code == 2
    assert "cannot write into" in found.output
    found = run("generate", "fleet", "--sites", "1", "--out", out)
    assert found.exit_code == 2
    assert "cannot write" in found.output


def test_what_is_drawn_is_whole_and_in_place_of_what_was(tmp_path: Path) -> None:
    out, words = tmp_path / "out", ("generate", "records", "--sites", "1", "--out")
    truth = RecordTruth(sites=3)
    write_generated_records(truth, out, 300)
    (out / "records" / "site=site0" / "old.parquet").touch()
    (out / "mine.txt").touch()
    assert run(*words, str(out), "--rows", "100").exit_code == 0
    assert {path.name for path in out.iterdir()} == {"mine.txt", "predictions.parquet", "records"}
    assert [path.name for path in (out / "records").iterdir()] == ["site=site0"]
    assert len(list(out.rglob("*.parquet"))) == 2
    for nowhere in ("records", "feedback", "fleet"):
        found = run("generate", nowhere, "--out", "/proc/nope")
        assert (found.exit_code, "cannot write" in found.output) == (2, True), found.output


@pytest.mark.parametrize("given", ["nan", "-3", "inf", "-1"])
def test_a_drift_that_cannot_be_is_refused(given: str, tmp_path: Path) -> None:
    found = run("generate", "records", "--drift", given, "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert "--drift" in found.output


def test_profiles_that_are_none_are_named(feedback: Path, tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps({"phase": 1}))
    words = ("--previous", str(file), "--out", str(tmp_path / "out"))
    found = run("fit-utility-weights", str(feedback), *words)
    assert found.exit_code == 2
    assert f"{file}: not profiles" in found.output


def test_calibration_wants_an_assignment(planned: Path, tmp_path: Path) -> None:
    plain = yaml.safe_load(planned.read_text())
    del plain["assignment"]
    planned.write_text(yaml.safe_dump(plain))
    found = run("calibrate", str(tmp_path), str(planned), "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert "has no assignment" in found.output
