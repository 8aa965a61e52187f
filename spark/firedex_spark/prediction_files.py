"""Predictions as files: what was said of every subscription of a site's configuration.

Read from Parquet, and from the JSON that the service answers (``GET /v1/configuration``) or that
``firedex plan --json`` and ``predict --json`` print; those last have no version and count as 0, as
simulated records do.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from firedex.wire import Configuration, Prediction, SubscriptionPrediction, WireError, from_plain
from firedex_spark.errors import NoPredictions, UnreadablePredictions

__all__ = ["SCHEMA", "PredictedSubscription", "read_predictions", "write_predictions"]

INTEGERS = {"flow", "priority"}
TEXTS = {"subscriber", "filter", "method", "reason"}
FLAGS = {"deadline_met"}


def _type(name: str) -> pa.DataType:
    if name in INTEGERS:
        return pa.int64()
    if name in TEXTS:
        return pa.string()
    return pa.bool_() if name in FLAGS else pa.float64()


SCHEMA = pa.schema(
    [
        ("site", pa.string()),
        ("configuration_version", pa.int64()),
        *((f.name, _type(f.name)) for f in fields(SubscriptionPrediction)),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSubscription:
    """What one configuration of one site predicts of one subscription."""

    site: str
    configuration_version: int
    prediction: SubscriptionPrediction

    def as_row(self) -> dict[str, Any]:
        """By the columns of ``SCHEMA``."""
        return {
            "site": self.site,
            "configuration_version": self.configuration_version,
            **asdict(self.prediction),
        }


def write_predictions(path: Path, predicted: Iterable[PredictedSubscription]) -> None:
    """Write all predictions as one Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [one.as_row() for one in predicted]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)


def read_predictions(source: Path) -> list[PredictedSubscription]:
    """All predictions in a file, or in the ``.json`` and ``.parquet`` files of a folder."""
    files = [source]
    if source.is_dir():
        files = sorted([*source.rglob("*.json"), *source.rglob("*.parquet")])
    if not files:
        raise NoPredictions(source)
    found: dict[tuple[str, int, str, str], PredictedSubscription] = {}
    for file in files:
        for one in _read(file):
            said = one.prediction
            found[one.site, one.configuration_version, said.subscriber, said.filter] = one
    return list(found.values())


def _read(file: Path) -> list[PredictedSubscription]:
    try:
        if file.suffix == ".parquet":
            return [_of_row(row) for row in pq.read_table(file, schema=SCHEMA).to_pylist()]
        return _of_json(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, WireError, pa.ArrowException) as error:
        raise UnreadablePredictions(file, str(error)) from error


def _of_row(row: dict[str, Any]) -> PredictedSubscription:
    site, version = row.pop("site"), row.pop("configuration_version")
    return PredictedSubscription(
        site=site,
        configuration_version=version,
        prediction=from_plain(SubscriptionPrediction, row, tolerant=True),
    )


def _of_json(data: Any) -> list[PredictedSubscription]:
    if "flows" in data and "version" in data:
        configuration = from_plain(Configuration, data, tolerant=True)
        site, version = configuration.site, configuration.version
        rows = configuration.prediction.subscriptions if configuration.prediction else ()
    else:
        site, version = "site", 0
        rows = from_plain(Prediction, data, tolerant=True).subscriptions
    return [
        PredictedSubscription(site=site, configuration_version=version, prediction=row)
        for row in rows
    ]
