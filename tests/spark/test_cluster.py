"""The same job by spark-submit, on a master and two workers from the pip package, on loopback."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from simulated_deliveries import four_classes, judged_without_spark, write_simulated

import firedex_spark
from firedex.wire import to_json
from firedex_models import predict
from firedex_spark.measured_row import Bounds
from firedex_spark.session import java_is_there
from firedex_spark.validate_delays import Validation
from firedex_spark.validation_report import write_validation

pytestmark = [
    pytest.mark.long,  # six Java processes
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(not java_is_there(), reason="there is no Java (openjdk-17-jre-headless)"),
]
PATIENCE_SECONDS = 300.0
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
def daemon(folder: Path, name: str, kind: str, *words: str) -> Iterator[Path]:
    """A part of Spark as a process; its log says when it is ready."""
    log = folder / f"{name}.log"
    with log.open("wb") as into:
        process = subprocess.Popen(
            [BIN / "spark-class", f"org.apache.spark.deploy.{kind}", *LOOPBACK, *words],
            stdout=into,
            stderr=into,
            env=environment(folder),
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def await_line(log: Path, pattern: str) -> str:
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := re.search(pattern, log.read_text("utf-8", "replace"))):
        assert time.monotonic() < until, log.read_text("utf-8", "replace")
        time.sleep(0.1)
    return found.group(0)


def test_spark_submit_on_two_workers_finds_the_same(tmp_path: Path) -> None:
    scenario = four_classes()
    write_simulated(tmp_path / "records", scenario, replications=2, publications=3_000)
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(predict(scenario).to_prediction()))
    with daemon(tmp_path, "master", "master.Master") as log:
        master = await_line(log, r"spark://127\.0\.0\.1:\d+")
        small = ("--cores", "1", "--memory", "512m", master)
        with (
            daemon(tmp_path, "one", "worker.Worker", *small) as one,
            daemon(tmp_path, "two", "worker.Worker", *small) as two,
        ):
            for worker in (one, two):
                await_line(worker, "Successfully registered with master")
            for out, more in (("whole", ()), ("stream", ("--follow", "--once"))):
                said = submitted(tmp_path, master, "--out", out, *more)
                assert said["alarms"] == 0
            used = list((tmp_path / "work").glob("app-*/*/stderr"))
    alone = Validation(
        rows=tuple(judged_without_spark(tmp_path / "records", scenario)),
        bounds=Bounds(),
        records=said["records"],
        refused={},
        left_out=(),
        unrecorded=(),
    )
    (tmp_path / "alone").mkdir()
    write_validation(alone, tmp_path / "alone")
    wanted = pq.read_table(tmp_path / "alone" / "measured.parquet")
    assert wanted.num_rows == 16
    for out in ("whole", "stream"):
        assert pq.read_table(tmp_path / out / "measured.parquet").equals(wanted)
    assert len(used) == 4  # an executor on each worker, each time


def submitted(folder: Path, master: str, *words: str) -> dict[str, Any]:
    """What the job says of records in a folder that workers are not in: paths are relative."""
    program = Path(firedex_spark.__file__).parent / "__main__.py"
    done = subprocess.run(
        [
            *(BIN / "spark-submit", "--master", master, "--driver-memory", "512m"),
            *("--conf", "spark.driver.host=127.0.0.1", "--executor-memory", "512m"),
            *(program, "validate-delays", "records", "--json"),
            *("--predictions", "plan.json", *words),
        ],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return said
