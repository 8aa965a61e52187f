"""Prediction files: what a configuration of a site predicts for each subscription.

Reads Parquet and JSON: configurations of the service (``GET /v1/configurations/7``), observations
of an emulation (with all configurations) and the output of ``firedex plan --json``, which has
version 0, as simulated records do, and the site that the caller names.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from firedex.wire import Configuration, Prediction, SubscriptionPrediction, WireError, from_plain
from firedex_spark.errors import NoPredictions, UnreadablePredictions
from firedex_spark.schemas import PREDICTION_SCHEMA

__all__ = [
    "DEFAULT_SITE",
    "PredictedSubscription",
    "read_predictions",
    "write_predictions",
]

DEFAULT_SITE = "site"
SUFFIXES = (".json", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSubscription:
    """The prediction of one configuration of one site for one subscription."""

    site: str
    configuration_version: int
    prediction: SubscriptionPrediction

    def as_row(self) -> dict[str, Any]:
        """Return the columns of ``PREDICTION_SCHEMA``."""
        return {
            "site": self.site,
            "configuration_version": self.configuration_version,
            **asdict(self.prediction),
        }


def write_predictions(path: Path, predicted: Iterable[PredictedSubscription]) -> None:
    """Write all predictions as one Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [one.as_row() for one in predicted]
    pq.write_table(pa.Table.from_pylist(rows, schema=PREDICTION_SCHEMA), path)


def read_predictions(source: Path, site: str = DEFAULT_SITE) -> list[PredictedSubscription]:
    """Read a file, or all ``.json`` and ``.parquet`` files of a folder.

    ``site``: the site of plans that do not name one.
    """
    files = [source]
    if source.is_dir():
        files = sorted(file for file in source.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise NoPredictions(source)
    found: dict[tuple[str, int, str, str], tuple[PredictedSubscription, Path]] = {}
    for file in files:
        for one in _read(file, site):
            prediction = one.prediction
            name = one.site, one.configuration_version, prediction.subscriber, prediction.filter
            before, other_file = found.setdefault(name, (one, file))
            if before != one:
                raise UnreadablePredictions(
                    file, f"contradicts {other_file} for site {name[0]} version {name[1]}"
                )
    return [one for one, _ in found.values()]


def _read(file: Path, site: str) -> list[PredictedSubscription]:
    try:
        if file.suffix.lower() == ".parquet":
            return [
                _prediction_from_row(row)
                for row in pq.read_table(file, schema=PREDICTION_SCHEMA).to_pylist()
            ]
        return _predictions_from_json(json.loads(file.read_text("utf-8")), site)
    except (OSError, ValueError, TypeError, KeyError, WireError, pa.ArrowException) as error:
        raise UnreadablePredictions(file, str(error)) from error


def _prediction_from_row(row: dict[str, Any]) -> PredictedSubscription:
    site, version = row.pop("site"), row.pop("configuration_version")
    if site is None or version is None:
        raise ValueError("a row has no site or configuration_version")
    return PredictedSubscription(
        site=site,
        configuration_version=version,
        prediction=from_plain(SubscriptionPrediction, row, tolerant=True),
    )


def _predictions_from_json(data: Any, site: str) -> list[PredictedSubscription]:
    if "configurations" in data:
        each = [one["configuration"] for one in data["configurations"]]
        return [prediction for one in each for prediction in _predictions_from_json(one, site)]
    version = 0
    if "flows" in data and "version" in data:
        configuration = from_plain(Configuration, data, tolerant=True)
        site, version = configuration.site, configuration.version
        rows = configuration.prediction.subscriptions if configuration.prediction else ()
    else:
        rows = from_plain(Prediction, data, tolerant=True).subscriptions
    return [
        PredictedSubscription(site=site, configuration_version=version, prediction=row)
        for row in rows
    ]
