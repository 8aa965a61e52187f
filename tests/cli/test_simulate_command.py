"""``firedex simulate`` and its delivery records; ``firedex reproduce``."""

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner, Result

from firedex.cli import firedex
from firedex.lab.reproduction import QUICK, Effort, Figure, reproduce, write_figure, write_report
from firedex.transport.delivery_schema import SCHEMA
from firedex.wire import DeliveryRecord, SimulationReport, from_json, from_plain
from firedex_clients.delivery_log import read_records
from tests.support.small_site import site, write_scenario

pytestmark = pytest.mark.slow

HIGH_RISE = "builtin:high-rise"
SHORT = ("--replications", "2", "--publications", "4000", "--workers", "1")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(firedex, arguments)


def test_scenario_without_assignment_is_planned_first() -> None:
    result = run("simulate", HIGH_RISE, *SHORT)
    assert result.exit_code == 0, result.output
    assert "planning with drop policy deadline-aware" in result.stderr
    assert "Simulated (predicted)" in result.output
    assert "fireground" in result.output


def test_json_contains_the_documented_fields() -> None:
    result = run("simulate", HIGH_RISE, *SHORT, "--json")
    assert result.exit_code == 0
    report = from_json(SimulationReport, result.stdout)
    assert len(report.subscriptions) == 32
    plain = json.loads(result.stdout)
    for key in ("subscriptions", "classes", "switches", "utility", "achieved_utility_rate"):
        assert key in plain
    assert plain["switches"][1]["id"] == "fireground"
    assert run("simulate", HIGH_RISE, *SHORT, "--json").stdout == result.stdout


def test_scenario_with_assignment_is_not_planned_again(tmp_path: Path) -> None:
    result = run("simulate", write_scenario(tmp_path, site()), *SHORT, "--all")
    assert result.exit_code == 0
    assert "planning with" not in result.stderr
    assert "command smoke/#" in result.output


def test_records_match_the_counts_of_the_report(tmp_path: Path) -> None:
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
    # A flow carries an event once for all its filters, but each filter has its own record.
    assert delivered >= report.notifications.delivered
    assert dropped >= report.notifications.dropped_at_gateway > 0
    for row in tables[0].slice(0, 200).to_pylist():
        record = from_plain(DeliveryRecord, row)
        if record.received_at_seconds is not None and record.published_at_seconds is not None:
            assert record.received_at_seconds > record.published_at_seconds
        assert record.publisher in ("building", "responders")


def test_folder_that_contains_records_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    assert run("simulate", HIGH_RISE, *SHORT, "--records", str(folder)).exit_code == 0
    second = run("simulate", HIGH_RISE, *SHORT, "--records", str(folder))
    assert second.exit_code == 2
    assert "already contains records" in second.stderr
    file = tmp_path / "file"
    file.write_text("")
    below_a_file = run("simulate", HIGH_RISE, *SHORT, "--records", str(file / "under"))
    assert below_a_file.exit_code == 2
    assert "--records: Not a directory" in below_a_file.stderr


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


reproduction = pytest.mark.long
"""All figures together take a minute of processor time."""
TINY = Effort(seeds=2, publications=30_000, subscribers=(1, 10), factors=(1, 8))


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    names = ["fig5", "fig6", "fig7", "fig8", "fig9", "fig10"]
    return {figure.name: figure for figure in reproduce(names, TINY)}


def values(figure: Figure, panel: int, label: str, by: str) -> list[Any]:
    (series,) = [s for s in figure.panels[panel].series if s.label == label and s.by == by]
    return list(series.y)


@reproduction
def test_simulated_delays_increase_with_the_class_as_predicted(figures: dict[str, Figure]) -> None:
    for panel in range(6):
        simulated = values(figures["fig5"], panel, "simulated", "simulation")
        modelled = values(figures["fig5"], panel, "fan-out model", "model")
        assert simulated[0] < simulated[4] < simulated[8]
        assert modelled == sorted(modelled)
        for class_ in range(6):
            assert simulated[class_] == pytest.approx(modelled[class_], rel=0.15)


@reproduction
def test_model_of_the_paper_ignores_fan_out(figures: dict[str, Figure]) -> None:
    shared_link = values(figures["fig5"], 0, "the paper's model", "model")
    assert shared_link[8] < 0.6 * values(figures["fig5"], 0, "fan-out model", "model")[8]
    separate_links = values(figures["fig5"], 3, "the paper's model", "model")
    assert separate_links == pytest.approx(
        values(figures["fig5"], 3, "fan-out model", "model"), rel=1e-6
    )


@reproduction
def test_success_rates_agree_with_the_paper(figures: dict[str, Figure]) -> None:
    for panel in range(2):
        priorities = values(figures["fig7"], panel, "priorities", "simulation")
        both = values(figures["fig7"], panel, "priorities and drop rates", "simulation")
        assert min(priorities[:4]) > 99
        assert priorities[8] < 5
        assert both[0] == pytest.approx(100)
        assert both == sorted(both, reverse=True)


@reproduction
def test_policies_with_more_information_achieve_more_utility(figures: dict[str, Figure]) -> None:
    for panel in (0, 3):  # the panels with the sum of utilities
        simulated = values(figures["fig9"], panel, "simulated", "simulation")
        nothing, random, information, adjusted, exponential, optimized, aware = simulated
        assert adjusted > information > nothing > random
        assert optimized > exponential
        assert aware > optimized


@reproduction
def test_optimized_drop_rates_achieve_the_most_utility(figures: dict[str, Figure]) -> None:
    for panel in (0, 2):
        optimized = values(figures["fig10"], panel, "optimized", "simulation")
        for policy in ("flat", "linear", "exponential"):
            other_utility = values(figures["fig10"], panel, policy, "simulation")
            assert all(best > lower for best, lower in zip(optimized, other_utility, strict=True))


@reproduction
def test_figures_and_report_are_written_with_claims(
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


def test_reproduce_command_writes_figures_and_report(tmp_path: Path) -> None:
    assert QUICK.seeds >= 2
    result = run("reproduce", "fig7", "--quick", "--workers", "2", "--out", str(tmp_path / "f"))
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "f").iterdir()}
    assert names == {"fig7.csv", "fig7.png", "fig7.svg", "report.md", "report.html"}
