"""Simulated records and their validation, shared by all tests of the package."""

from pathlib import Path

import pytest

from firedex_spark.session import SparkSession
from firedex_spark.validation.job import Validation, validate_delays
from tests.spark.simulated_deliveries import (
    simulate_records,
)
from tests.spark.validation.four_classes_site import SCENARIO, predictions


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    simulate_records(folder, SCENARIO, replications=2, publications=8_000)
    return folder


@pytest.fixture(scope="session")
def validation(spark: SparkSession, simulated: Path) -> Validation:
    return validate_delays(spark, simulated, predictions())
