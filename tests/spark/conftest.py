"""One Spark session for all tests; tests that need it are skipped where there is no Java."""

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from firedex_spark.session import SparkSession, java_is_installed, spark_session


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests that need the session on one worker, so that only one starts Java."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if not java_is_installed():
        pytest.skip("Java is not installed (openjdk-17-jre-headless)")
    with spark_session("tests", memory="1g") as session:
        session.conf.set("spark.sql.shuffle.partitions", "2")  # tests have few rows
        yield session
