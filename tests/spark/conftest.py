"""One Spark session for all tests of a process; without Java they are skipped by name."""

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from firedex_spark.session import SparkSession, java_is_there, spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if not java_is_there():
        pytest.skip("there is no Java (openjdk-17-jre-headless)")
    with spark_session("tests", memory="1g") as session:
        yield session
