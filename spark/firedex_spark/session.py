"""The one place where Spark sessions are made: quiet, on loopback, leaving nothing behind.

Under ``spark-submit`` master, memory and hosts are its business; otherwise Spark runs here.
"""

import logging
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from firedex_spark.errors import JavaFailed, NoJava

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own business with the versions of others
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has none
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

__all__ = [
    "SPARK_ERRORS",
    "SparkSession",
    "java_is_there",
    "spark_session",
    "tell_if_alone",
    "what_spark_says",
]

SPARK_ERRORS = (PySparkException, Py4JError)
"""Whatever Spark raises by itself."""
LOG_LEVEL = "FIREDEX_SPARK_LOG"
"""The variable that says how much of Spark's own log is shown; none of it if there is none."""
LOGGERS = ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Of Spark's Python side; what they say is raised as well."""
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

ALONE_SECONDS = 30.0
LOOPBACK = "127.0.0.1"
DEFAULT_MEMORY = "2g"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


def java_is_there() -> bool:
    """Whether Spark can start."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or bool(home and (Path(home) / "bin/java").exists())


@contextmanager
def spark_session(
    name: str, *, master: str | None = None, memory: str = DEFAULT_MEMORY
) -> Iterator[SparkSession]:
    """A session; what Spark writes for itself is in a folder that goes when it ends.

    ``master``: ``spark://HOST:PORT``, or none for all cores of this machine. One that is there
    already is used as it is, and left alone.
    """
    already = SparkSession.getActiveSession()
    if already is not None:
        yield already
        return
    if not java_is_there():
        raise NoJava
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(os.environ.get(LOG_LEVEL, logging.CRITICAL))
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    with tempfile.TemporaryDirectory(prefix="firedex-spark-") as folder:
        builder = SparkSession.builder.appName(f"firedex {name}")
        level = os.environ.get(LOG_LEVEL, "OFF")
        own = {"spark.log.level": level} if submitted else _own(Path(folder), memory, level)
        settings = SETTINGS | own
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
            raise JavaFailed(what_spark_says(error)) from error
        asked = Timer(ALONE_SECONDS, tell_if_alone, [session])
        asked.daemon = True
        try:
            if master is not None or submitted:
                asked.start()
            yield session
        finally:
            asked.cancel()
            session.stop()


def tell_if_alone(session: SparkSession) -> None:
    """On standard error, if no worker of a cluster has anything for the job."""
    context = session.sparkContext
    if str(context.master).startswith("local"):
        return
    try:
        executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver
    except SPARK_ERRORS:
        return  # it has ended meanwhile
    if executors < 1:
        memory = context.getConf().get("spark.executor.memory", "1g")
        print(
            f"waiting: in {ALONE_SECONDS:.0f} seconds no worker of {context.master} has started "
            f"anything; it takes one with a free core and {memory} of memory (--memory)",
            file=sys.stderr,
            flush=True,
        )


def what_spark_says(error: Exception) -> str:
    """The line that says what happened, of the many of a Java or a worker's traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    caused = [line for line in lines if line.startswith("Caused by:")]
    raised = [line for line in lines if re.match(r"^[\w.]*(Error|Exception)(:|$)", line)]
    told = [*caused[-1:], *raised[-1:], *lines[:1], type(error).__name__]
    return told[0].removeprefix("Caused by: ")[:500]


def _own(folder: Path, memory: str, level: str) -> dict[str, str]:
    """What ``spark-submit`` would see to."""
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
