"""The scenario that records were simulated with, and one that declares other values."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex.wire import Scenario
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.sweep.scenario_paths import with_values
from tests.spark.calibration.calibrations import CORE, RATE
from tests.spark.simulated_deliveries import four_classes, simulate_records


@pytest.fixture(scope="session")
def true_scenario() -> Scenario:
    return with_values(four_classes(), {CORE + "error_rate": 0.03})


@pytest.fixture(scope="session")
def declared_scenario(true_scenario: Scenario) -> Scenario:
    return with_values(
        true_scenario,
        {
            CORE + "error_rate": 0.0,
            CORE + "bandwidth_bits_per_second": 250_000.0,
            "topics.sensor1/floor1.event_bytes": 90,
            RATE: 4.0,
        },
    )


@pytest.fixture(scope="session")
def simulated_records(
    true_scenario: Scenario, tmp_path_factory: pytest.TempPathFactory
) -> pa.Table:
    folder = tmp_path_factory.mktemp("simulated")
    simulate_records(folder, true_scenario, publications=10_000)
    return pq.read_table(folder, schema=DELIVERY_SCHEMA)
