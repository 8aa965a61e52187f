"""Run a job with spark-submit on a master and two workers on loopback."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

import firedex_spark
from firedex.wire import to_json
from firedex_models import predict
from firedex_spark.session import java_is_installed
from firedex_spark.validation.job import Validation
from firedex_spark.validation.report import write_validation
from firedex_spark.validation.verdicts import Bounds
from tests.spark.simulated_deliveries import four_classes, simulate_records, validate_in_one_process
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.long,  # six Java processes
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(
        not java_is_installed(), reason="Java is not installed (openjdk-17-jre-headless)"
    ),
]
TIMEOUT_SECONDS = 300.0
BIN = Path(pyspark.__file__).parent / "bin"
LOOPBACK = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }


@contextmanager
def daemon(folder: Path, name: str, kind: str, *arguments: str) -> Iterator[Path]:
    """Run a Spark daemon; yield its log file."""
    log = folder / f"{name}.log"
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [BIN / "spark-class", f"org.apache.spark.deploy.{kind}", *LOOPBACK, *arguments],
            stdout=log_file,
            stderr=log_file,
            env=environment(folder),
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


def wait_for_line(log: Path, pattern: str) -> str:
    def found() -> re.Match[str] | None:
        return re.search(pattern, log.read_text("utf-8", "replace"))

    return wait_until(found, f"{pattern} in {log}", TIMEOUT_SECONDS).group(0)


def test_spark_submit_on_two_workers_has_the_same_result(tmp_path: Path) -> None:
    scenario = four_classes()
    simulate_records(tmp_path / "records", scenario, replications=2, publications=3_000)
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(predict(scenario).to_prediction()))
    with daemon(tmp_path, "master", "master.Master") as log:
        master = wait_for_line(log, r"spark://127\.0\.0\.1:\d+")
        small = ("--cores", "1", "--memory", "512m", master)
        with (
            daemon(tmp_path, "one", "worker.Worker", *small) as one,
            daemon(tmp_path, "two", "worker.Worker", *small) as two,
        ):
            for worker in (one, two):
                wait_for_line(worker, "Successfully registered with master")
            for out, more in (("whole", ()), ("stream", ("--follow", "--once"))):
                summary = submit_job(tmp_path, master, "--out", out, *more)
                assert summary["alarms"] == 0
            executor_logs = list((tmp_path / "work").glob("app-*/*/stderr"))
    alone = Validation(
        rows=tuple(validate_in_one_process(tmp_path / "records", scenario)),
        bounds=Bounds(),
        records=summary["records"],
        refused={},
        skipped=(),
        without_records=(),
    )
    (tmp_path / "alone").mkdir()
    write_validation(alone, tmp_path / "alone")
    expected = pq.read_table(tmp_path / "alone" / "measured.parquet")
    assert expected.num_rows == 16
    for out in ("whole", "stream"):
        assert pq.read_table(tmp_path / out / "measured.parquet").equals(expected)
    assert len(executor_logs) == 4  # one executor on each worker in each of two runs


def submit_job(folder: Path, master: str, *arguments: str) -> dict[str, Any]:
    """Submit the job with relative paths; return its summary."""
    program = Path(firedex_spark.__file__).parent / "__main__.py"
    done = subprocess.run(
        [
            *(BIN / "spark-submit", "--master", master, "--driver-memory", "512m"),
            *("--conf", "spark.driver.host=127.0.0.1", "--executor-memory", "512m"),
            *(program, "validate-delays", "records", "--json"),
            *("--predictions", "plan.json", *arguments),
        ],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return summary
