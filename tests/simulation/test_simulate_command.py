"""``firedex simulate`` and its delivery records; ``firedex reproduce``."""

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner, Result
from small_site import site, write

from firedex.cli.commands import firedex
from firedex.delivery_schema import SCHEMA
from firedex.reproduction import QUICK, Effort, Figure, reproduce, write_figure, write_report
from firedex.wire import DeliveryRecord, SimulationReport, from_json, from_plain
from firedex_clients.delivery_log import read_records

HIGH_RISE = "builtin:high-rise"
SHORT = ("--replications", "2", "--publications", "4000", "--workers", "1")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(firedex, arguments)


def test_it_plans_first_if_nobody_has() -> None:
    result = run("simulate", HIGH_RISE, *SHORT)
    assert result.exit_code == 0, result.output
    assert "planning first, drop rates deadline-aware" in result.stderr
    assert "Simulated, and (predicted)" in result.output
    assert "fireground" in result.output


def test_json_has_the_promised_fields() -> None:
    result = run("simulate", HIGH_RISE, *SHORT, "--json")
    assert result.exit_code == 0
    report = from_json(SimulationReport, result.stdout)
    assert len(report.subscriptions) == 32
    plain = json.loads(result.stdout)
    for key in ("subscriptions", "classes", "switches", "utility", "achieved_utility_rate"):
        assert key in plain
    assert plain["switches"][1]["id"] == "fireground"
    assert run("simulate", HIGH_RISE, *SHORT, "--json").stdout == result.stdout


def test_an_assignment_is_simulated_as_it_is(tmp_path: Path) -> None:
    result = run("simulate", write(tmp_path, site()), *SHORT, "--all")
    assert result.exit_code == 0
    assert "planning first" not in result.stderr
    assert "command smoke/#" in result.output


def test_records_are_delivery_records_and_add_up(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "records"
    result = run("simulate", HIGH_RISE, *SHORT, "--records", str(folder), "--json")
    assert result.exit_code == 0
    report = from_json(SimulationReport, result.stdout)
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"replication-000{n}.parquet" for n in (0, 1)]
    tables = [read_records(file) for file in files]
    assert all(table.schema == SCHEMA for table in tables)
    delivered = sum(pc.sum(pc.equal(t["outcome"], "delivered")).as_py() for t in tables)
    dropped = sum(pc.sum(pc.equal(t["outcome"], "dropped-at-gateway")).as_py() for t in tables)
    # a flow carries an event once for all its filters; there is a record for each of them
    assert delivered >= report.notifications.delivered
    assert dropped >= report.notifications.dropped_at_gateway > 0
    for row in tables[0].slice(0, 200).to_pylist():
        record = from_plain(DeliveryRecord, row)
        if record.received_at_seconds is not None and record.published_at_seconds is not None:
            assert record.received_at_seconds > record.published_at_seconds
        assert record.publisher in ("building", "responders")


def test_records_are_not_mixed_with_those_of_another_run(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    assert run("simulate", HIGH_RISE, *SHORT, "--records", str(folder)).exit_code == 0
    again = run("simulate", HIGH_RISE, *SHORT, "--records", str(folder))
    assert again.exit_code == 2
    assert "holds records already" in again.stderr
    file = tmp_path / "file"
    file.write_text("")
    blocked = run("simulate", HIGH_RISE, *SHORT, "--records", str(file / "under"))
    assert blocked.exit_code == 2
    assert "--records: Not a directory" in blocked.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", HIGH_RISE, "--arrivals", "independent", "--records", "anywhere"),
        ("simulate", HIGH_RISE, "--replications", "0"),
        ("simulate", HIGH_RISE, "--publications", "0"),
        ("simulate", HIGH_RISE, "--arrivals", "magic"),
        ("reproduce",),
        ("reproduce", "fig4"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


of_one_reproduction = pytest.mark.xdist_group("reproduction")
"""It takes a minute: whoever runs tests side by side makes it once."""
TINY = Effort(seeds=2, publications=30_000, subscribers=(1, 10), factors=(1, 8))


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    names = ["fig5", "fig6", "fig7", "fig8", "fig9", "fig10"]
    return {figure.name: figure for figure in reproduce(names, TINY)}


def values(figure: Figure, panel: int, label: str, by: str) -> list[Any]:
    (found,) = [s for s in figure.panels[panel].series if s.label == label and s.by == by]
    return list(found.y)


@of_one_reproduction
def test_delays_rise_with_the_class_and_the_model_follows(figures: dict[str, Figure]) -> None:
    for panel in range(6):
        simulated = values(figures["fig5"], panel, "simulated", "simulation")
        modelled = values(figures["fig5"], panel, "fan-out model", "model")
        assert simulated[0] < simulated[4] < simulated[8]
        assert modelled == sorted(modelled)
        for class_ in range(6):
            assert simulated[class_] == pytest.approx(modelled[class_], rel=0.15)


@of_one_reproduction
def test_the_papers_model_leaves_fan_out_out(figures: dict[str, Figure]) -> None:
    shared = values(figures["fig5"], 0, "the paper's model", "model")
    assert shared[8] < 0.6 * values(figures["fig5"], 0, "fan-out model", "model")[8]
    apart = values(figures["fig5"], 3, "the paper's model", "model")
    assert apart == pytest.approx(values(figures["fig5"], 3, "fan-out model", "model"), rel=1e-6)


@of_one_reproduction
def test_success_is_as_the_paper_says(figures: dict[str, Figure]) -> None:
    for panel in range(2):
        priorities = values(figures["fig7"], panel, "priorities", "simulation")
        both = values(figures["fig7"], panel, "priorities and drop rates", "simulation")
        assert min(priorities[:4]) > 99
        assert priorities[8] < 5
        assert both[0] == pytest.approx(100)
        assert both == sorted(both, reverse=True)


@of_one_reproduction
def test_policies_are_ordered_by_what_they_know(figures: dict[str, Figure]) -> None:
    for panel in (0, 3):  # by the sum, in both readings
        simulated = values(figures["fig9"], panel, "simulated", "simulation")
        nothing, random, information, adjusted, exponential, optimized, aware = simulated
        assert adjusted > information > nothing > random
        assert optimized > exponential
        assert aware > optimized


@of_one_reproduction
def test_optimized_drop_rates_are_worth_most(figures: dict[str, Figure]) -> None:
    for panel in (0, 2):
        optimized = values(figures["fig10"], panel, "optimized", "simulation")
        for other in ("flat", "linear", "exponential"):
            less = values(figures["fig10"], panel, other, "simulation")
            assert all(mine > theirs for mine, theirs in zip(optimized, less, strict=True))


@of_one_reproduction
def test_every_figure_is_written_with_its_claims(
    figures: dict[str, Figure], tmp_path: Path
) -> None:
    for figure in figures.values():
        data, png, svg = write_figure(figure, tmp_path)
        assert data.read_text("utf-8").count("\n") > 20
        assert png.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in svg.read_text("utf-8")
        assert figure.claims
    markdown, page = write_report(list(figures.values()), TINY, tmp_path)
    for text in (markdown.read_text("utf-8"), page.read_text("utf-8")):
        for figure in figures.values():
            assert figure.title in text
            assert f"{figure.name}.svg" in text
    assert "does not hold" in markdown.read_text("utf-8")


def test_the_command_writes_what_it_says(tmp_path: Path) -> None:
    assert QUICK.seeds >= 2
    result = run("reproduce", "fig7", "--quick", "--workers", "2", "--out", str(tmp_path / "f"))
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "f").iterdir()}
    assert names == {"fig7.csv", "fig7.png", "fig7.svg", "report.md", "report.html"}
