"""Predictions as files: what was said of every subscription of a site's configuration.

Read from Parquet, and from JSON: of the service (``GET /v1/configurations/7``), of an emulation
(its observation holds all configurations), and of ``firedex plan --json``, which has no version and
counts as 0, as simulated records do, and is of the site that the caller says.
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
    "USUAL_SITE",
    "PredictedSubscription",
    "read_predictions",
    "write_predictions",
]

USUAL_SITE = "site"
SUFFIXES = (".json", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSubscription:
    """What one configuration of one site predicts of one subscription."""

    site: str
    configuration_version: int
    prediction: SubscriptionPrediction

    def as_row(self) -> dict[str, Any]:
        """By the columns of ``PREDICTION_SCHEMA``."""
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


def read_predictions(source: Path, site: str = USUAL_SITE) -> list[PredictedSubscription]:
    """All predictions in a file, or in the ``.json`` and ``.parquet`` files of a folder.

    ``site``: whose the plans are that do not say it.
    """
    files = [source]
    if source.is_dir():
        files = sorted(file for file in source.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise NoPredictions(source)
    found: dict[tuple[str, int, str, str], tuple[PredictedSubscription, Path]] = {}
    for file in files:
        for one in _read(file, site):
            said = one.prediction
            name = one.site, one.configuration_version, said.subscriber, said.filter
            before, where = found.setdefault(name, (one, file))
            if before != one:
                raise UnreadablePredictions(
                    file, f"of {name[0]} version {name[1]} {where} says something else"
                )
    return [one for one, _ in found.values()]


def _read(file: Path, site: str) -> list[PredictedSubscription]:
    try:
        if file.suffix.lower() == ".parquet":
            return [
                _of_row(row) for row in pq.read_table(file, schema=PREDICTION_SCHEMA).to_pylist()
            ]
        return _of_json(json.loads(file.read_text("utf-8")), site)
    except (OSError, ValueError, TypeError, KeyError, WireError, pa.ArrowException) as error:
        raise UnreadablePredictions(file, str(error)) from error


def _of_row(row: dict[str, Any]) -> PredictedSubscription:
    site, version = row.pop("site"), row.pop("configuration_version")
    if site is None or version is None:
        raise ValueError("a row without site or configuration_version")
    return PredictedSubscription(
        site=site,
        configuration_version=version,
        prediction=from_plain(SubscriptionPrediction, row, tolerant=True),
    )


def _of_json(data: Any, site: str) -> list[PredictedSubscription]:
    if "configurations" in data:
        each = [one["configuration"] for one in data["configurations"]]
        return [said for one in each for said in _of_json(one, site)]
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
