"""Rows of a fleet that cannot be planned, without Spark: each says why, and none is lost."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex.planning import plan_scenario
from firedex.wire import to_json, to_plain
from firedex_spark import plan_sites
from firedex_spark.generated_fleet import generated_fleet
from firedex_spark.plan_sites import FLEET_SCHEMA, fleet_rows, planned_group, planned_rows

NAME, SCENARIO = next(generated_fleet(1, 40))
GOOD = to_json(SCENARIO)


@pytest.mark.parametrize(
    ("site", "scenarios", "said"),
    [
        (None, [GOOD, GOOD], "site is missing, in 2 rows"),
        ("tower", [None], "scenario is missing"),
        ("tower", [None, GOOD], "2 different scenarios"),
        ("tower", [GOOD, GOOD.replace("site 0", "site 1")], "2 different scenarios"),
        ("tower", ["not JSON"], "Invalid JSON"),
        ("tower", ["[]"], "must be a mapping"),
        ("tower", ["{}"], "name: is required"),
        ("tower", ["[" * 100_000], "Invalid JSON"),
        ("", [GOOD], "site is no identifier"),
        ("a site/..", [GOOD], "site is no identifier"),
        ("\ufffd", [GOOD], "site is no identifier"),
    ],
)
def test_a_bad_site_is_one_row_with_its_error(
    site: str | None, scenarios: list[str | None], said: str
) -> None:
    (row,) = planned_group(site, scenarios).to_pylist()
    assert row["site"] == site
    assert said in row["error"]
    assert row["subscriber"] is None


def test_whatever_planning_raises_is_the_sites_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_scenario: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(plan_sites, "plan_scenario", fails)
    (row,) = planned_rows("tower", GOOD).to_pylist()
    assert row["error"] == "ZeroDivisionError: by nothing"


def test_the_same_row_twice_is_one() -> None:
    assert planned_group(NAME, [GOOD, GOOD]).equals(planned_rows(NAME, GOOD))


def test_the_same_scenario_written_in_another_way_is_the_same() -> None:
    plain = json.loads(GOOD)
    turned = json.dumps(dict(reversed(plain.items())), indent=1)
    spaced = json.dumps(plain, sort_keys=True)
    assert turned != GOOD
    for rows in ([GOOD, turned, spaced], [spaced, turned, turned]):
        assert planned_group(NAME, rows).equals(planned_rows(NAME, GOOD))
    (row,) = planned_group(NAME, [GOOD, "[" * 100_000]).to_pylist()
    assert "2 different scenarios" in row["error"]


def test_a_site_of_several_switches_is_planned_as_alone() -> None:
    rows = planned_rows(NAME, GOOD).to_pylist()
    assert {row["switch"] for row in rows} == {"floor-switch0", "floor-switch1"}
    alone = plan_scenario(SCENARIO).table.to_prediction().subscriptions
    assert [(r["subscriber"], r["filter"]) for r in rows] == [
        (r.subscriber, r.filter) for r in alone
    ]
    for name in ("flow", "priority", "drop_rate", "success_rate", "delay_mean_seconds", "utility"):
        assert [row[name] for row in rows] == [getattr(one, name) for one in alone]


def test_a_site_without_subscriptions_is_not_lost() -> None:
    plain = to_plain(SCENARIO) | {"subscribers": []}
    plain = {key: value for key, value in plain.items() if value is not None}
    (row,) = planned_rows(NAME, json.dumps(plain)).to_pylist()
    assert (row["site"], row["subscriber"], row["error"]) == (NAME, None, None)


def test_bytes_that_are_no_text_and_broken_files_are_rows_too(tmp_path: Path) -> None:
    raw = pa.array([b"tower", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table([raw, raw], schema=FLEET_SCHEMA), tmp_path / "odd.parquet")
    found = fleet_rows(str(tmp_path / "odd.parquet"), 0).to_pylist()
    assert [row["site"] for row in found] == ["tower", "\ufffd"]
    (row,) = fleet_rows(str(tmp_path / "none.parquet"), 0).to_pylist()
    assert row["site"] == str(tmp_path / "none.parquet")
    assert "No such file" in row["broken"]
