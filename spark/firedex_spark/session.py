"""The one place where Spark sessions are made: quiet, on loopback, leaving nothing behind.

Under ``spark-submit`` master, memory and hosts are its business; otherwise Spark runs here.
"""

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firedex_spark.errors import NoJava

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own business with the versions of others
    from pyspark.sql import SparkSession

__all__ = ["SparkSession", "java_is_there", "spark_session"]

LOOPBACK = "127.0.0.1"
DEFAULT_MEMORY = "2g"
QUIET = {"spark.log.level": "ERROR"}
LOGGING = Path(__file__).with_name("log4j2.properties")
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
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    with tempfile.TemporaryDirectory(prefix="firedex-spark-") as folder:
        builder = SparkSession.builder.appName(f"firedex {name}")
        settings = SETTINGS | (QUIET if submitted else _own(Path(folder), memory))
        if not submitted and (master is None or LOOPBACK in master):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        for key, value in settings.items():
            builder = builder.config(key, value)
        if not submitted:
            builder = builder.master(master or f"local[{len(os.sched_getaffinity(0))}]")
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


def _own(folder: Path, memory: str) -> dict[str, str]:
    """What ``spark-submit`` would see to."""
    return {
        "spark.driver.memory": memory,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": " ".join(
            f"-D{name}={value}"
            for name, value in {
                "derby.system.home": folder,
                "java.io.tmpdir": folder,
                "log4j.configurationFile": LOGGING.as_uri(),
            }.items()
        ),
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
