"""Spark sessions: the only place where they are started.

Under ``spark-submit`` its options set master, memory and host; otherwise Spark runs on this machine
and listens on the loopback address only. Temporary files are removed when the session ends.
"""

import logging
import os
import pickle
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TypeVar

import pyarrow as pa

from firedex_spark.errors import JavaMissing, SparkStartFailed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings about versions of other packages
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

__all__ = [
    "SPARK_ERRORS",
    "SparkSession",
    "java_is_installed",
    "run_tasks",
    "spark_error_message",
    "spark_session",
    "warn_if_no_worker",
]

SPARK_ERRORS = (PySparkException, Py4JError)
"""The exceptions that Spark itself raises."""
LOG_LEVEL = "FIREDEX_SPARK_LOG"
"""Environment variable with the level of Spark's own log; without it nothing is logged."""
LOGGERS = ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of PySpark; their messages are also raised as exceptions."""
LOG_SETTINGS = """\
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = {level}
"""

NO_WORKER_SECONDS = 30.0
LOOPBACK = "127.0.0.1"
DEFAULT_MEMORY = "2g"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


def java_is_installed() -> bool:
    """Return whether a Java program is found in JAVA_HOME or on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or bool(home and (Path(home) / "bin/java").exists())


@contextmanager
def spark_session(
    name: str, *, master: str | None = None, memory: str = DEFAULT_MEMORY
) -> Iterator[SparkSession]:
    """Start a session, or use the active one, which is then left running.

    ``master``: ``spark://HOST:PORT`` of a cluster; None uses all cores of this machine.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    if not java_is_installed():
        raise JavaMissing
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for logger in LOGGERS:
        logging.getLogger(logger).setLevel(os.environ.get(LOG_LEVEL, logging.CRITICAL))
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    with tempfile.TemporaryDirectory(prefix="firedex-spark-") as folder:
        builder = SparkSession.builder.appName(f"firedex {name}")
        level = os.environ.get(LOG_LEVEL, "OFF")
        mode_settings = (
            {"spark.log.level": level}
            if submitted
            else _local_settings(Path(folder), memory, level)
        )
        settings = SETTINGS | mode_settings
        if not submitted and (master is None or LOOPBACK in master):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        for key, value in settings.items():
            builder = builder.config(key, value)
        if not submitted:
            builder = builder.master(master or f"local[{len(os.sched_getaffinity(0))}]")
        try:
            session = builder.getOrCreate()
        except SPARK_ERRORS as error:
            raise SparkStartFailed(spark_error_message(error)) from error
        timer = Timer(NO_WORKER_SECONDS, warn_if_no_worker, [session])
        timer.daemon = True
        try:
            if master is not None or submitted:
                timer.start()
            yield session
        finally:
            timer.cancel()
            session.stop()


T = TypeVar("T")


def run_tasks(
    spark: SparkSession, tasks: Sequence[T], work: Callable[[T], pa.Table], schema: pa.Schema
) -> DataFrame:
    """Run ``work`` on every task, each in its own partition, and return all rows.

    ``work`` and the tasks are pickled: executors must be able to import their modules.
    """
    packed = [(pickle.dumps(task),) for task in tasks]
    frame = spark.createDataFrame(packed, "task binary").repartition(max(len(packed), 1))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("task").to_pylist():
                yield from work(pickle.loads(task)).to_batches()  # noqa: S301  # our own

    return frame.mapInArrow(run, from_arrow_schema(schema))


def warn_if_no_worker(session: SparkSession) -> None:
    """Print a warning on standard error if no worker of the cluster has started an executor."""
    context = session.sparkContext
    if str(context.master).startswith("local"):
        return
    try:
        executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver
    except SPARK_ERRORS:
        return  # the session has ended
    if executors < 1:
        memory = context.getConf().get("spark.executor.memory", "1g")
        print(
            f"waiting: after {NO_WORKER_SECONDS:.0f} seconds no worker of {context.master} has "
            f"started an executor; the job needs a free core and {memory} of memory (--memory)",
            file=sys.stderr,
            flush=True,
        )


def spark_error_message(error: Exception) -> str:
    """Return the line of a Java or worker traceback that names the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    caused = [line for line in lines if line.startswith("Caused by:")]
    raised = [line for line in lines if re.match(r"^[\w.]*(Error|Exception)(:|$)", line)]
    candidates = [*caused[-1:], *raised[-1:], *lines[:1], type(error).__name__]
    return candidates[0].removeprefix("Caused by: ")[:500]


def _local_settings(folder: Path, memory: str, level: str) -> dict[str, str]:
    """Return the settings that ``spark-submit`` would make."""
    log = folder / "log4j2.properties"
    log.write_text(LOG_SETTINGS.format(level=level), "utf-8")
    java = f"-Dderby.system.home={folder} -Djava.io.tmpdir={folder}"
    return {
        "spark.driver.memory": memory,
        "spark.executor.memory": memory,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"{java} -Dlog4j2.configurationFile={log.as_uri()}",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
