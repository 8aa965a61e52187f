"""Prediction files: configurations, plans and Parquet."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from firedex.wire import Configuration, SubscriptionPrediction, to_json
from firedex_emulation.measurement.observation import ActiveConfiguration, Observation
from firedex_models import predict
from firedex_spark.errors import NoPredictions, UnreadablePredictions
from firedex_spark.records.predictions import read_predictions, write_predictions
from firedex_spark.schemas import PREDICTION_SCHEMA
from tests.spark.simulated_deliveries import four_classes, predict_subscriptions


def test_columns_match_the_wire_types() -> None:
    own = [field.name for field in fields(SubscriptionPrediction)]
    assert PREDICTION_SCHEMA.names == ["site", "configuration_version", *own]


def test_configurations_plans_and_parquet_are_read(tmp_path: Path) -> None:
    scenario = four_classes()
    prediction = predict(scenario).to_prediction()
    configuration = Configuration(
        version=7,
        broker="edge",
        site="tower",
        created_at=datetime(2026, 1, 31, tzinfo=UTC),
        reason="test",
        flows=(),
        prediction=prediction,
    )
    (tmp_path / "v7.json").write_text(to_json(configuration))
    (tmp_path / "plan.json").write_text(to_json(prediction))
    observed = Observation(
        began_at=0.0,
        ended_at=1.0,
        sent=(),
        sessions={},
        configurations=(
            ActiveConfiguration(
                configuration=replace(configuration, version=8), since=0.0, through_change=0
            ),
        ),
    )
    (tmp_path / "firedex-observation.json").write_text(observed.to_json())
    found = read_predictions(tmp_path)
    versions = {(one.site, one.configuration_version) for one in found}
    assert versions == {("tower", 7), ("tower", 8), ("site", 0)}
    said = {(o.prediction.subscriber, o.prediction.filter): o.prediction for o in found}
    assert said == predict_subscriptions(scenario)
    write_predictions(tmp_path / "again" / "all.parquet", found)
    assert read_predictions(tmp_path / "again") == found


def test_plan_belongs_to_the_given_site(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(to_json(predict(four_classes()).to_prediction()))
    assert {one.site for one in read_predictions(tmp_path, "tower")} == {"tower"}


def test_invalid_prediction_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text('{"flows": [], "version": 0}')
    with pytest.raises(UnreadablePredictions, match=r"wrong\.json: invalid predictions: .*version"):
        read_predictions(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoPredictions):
        read_predictions(tmp_path / "empty")


def test_contradicting_prediction_files_are_rejected(tmp_path: Path) -> None:
    prediction = predict(four_classes()).to_prediction()
    (tmp_path / "a.json").write_text(to_json(prediction))
    (tmp_path / "b.json").write_text(to_json(prediction))
    assert len(read_predictions(tmp_path)) == 12, "the same twice is one"
    (tmp_path / "b.json").write_text(to_json(predict(four_classes(load=0.5)).to_prediction()))
    with pytest.raises(UnreadablePredictions, match=r"b\.json: .*contradicts .*a\.json"):
        read_predictions(tmp_path)
