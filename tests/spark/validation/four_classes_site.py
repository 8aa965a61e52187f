"""Records of a site with four classes, in the forms that tests of validate-delays need."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firedex_spark.records.predictions import (
    PredictedSubscription,
)
from firedex_spark.schemas import DELIVERY_SCHEMA
from tests.spark.simulated_deliveries import (
    four_classes,
    predict_subscriptions,
)

SCENARIO = four_classes()


def predictions() -> list[PredictedSubscription]:
    return [
        PredictedSubscription(site="site", configuration_version=0, prediction=row)
        for row in predict_subscriptions(SCENARIO).values()
    ]


def scatter(records: Path, into: Path, parts: int) -> None:
    """Write the same rows in another order to other files, some of them twice."""
    table = pq.read_table(records, schema=DELIVERY_SCHEMA)
    random = np.random.default_rng(6)
    row = np.concatenate([np.arange(table.num_rows), random.integers(table.num_rows, size=2_000)])
    random.shuffle(row)
    into.mkdir(exist_ok=True)
    for number, some in enumerate(np.array_split(row, parts)):
        pq.write_table(table.take(pa.array(some)), into / f"part{number}.parquet")


def write_broken_files(records: Path, into: Path) -> None:
    """Write a file of which only the footer is valid, and a truncated file."""
    content = bytearray(next(records.glob("*.parquet")).read_bytes())
    content[2_000:60_000] = bytes(58_000)
    (into / "zz-broken.parquet").write_bytes(content)
    (into / "short.parquet").write_bytes(content[:500])
