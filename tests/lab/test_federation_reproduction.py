"""``firedex reproduce federation``: its cases, its report and its options."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firedex.cli import firedex
from firedex.lab.healing.rounds import ColdStart, HealingRound, MergeRound
from firedex.lab.reproduction import federation, federation_report
from firedex.lab.reproduction.federation import (
    CaseResult,
    FederationResult,
    NetworkResult,
    ReproductionSettings,
)
from firedex.lab.reproduction.federation_report import as_plain, report_tables, write_federation
from firedex.lab.reproduction.thesis import CASES, FailureCase
from firedex_emulation.site_networks.catalog import SITE_NETWORKS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(firedex, ["reproduce", *arguments])


def rounds(killed: list[float], stopped: list[float]) -> tuple[HealingRound, ...]:
    return tuple(
        HealingRound(
            kind=kind,  # type: ignore[arg-type]
            failed=("site3",),
            gap_seconds=gap,
            steady_gap_seconds=0.03,
        )
        for kind, gaps in (("killed", killed), ("stopped", stopped))
        for gap in gaps
    )


def result(*, sites: int = 25, failed: int = 8, killed: list[float]) -> FederationResult:
    settings = ReproductionSettings(sites=(sites,), rounds=len(killed), failed=failed)
    (case,) = settings.cases(sites)
    return FederationResult(
        settings=settings,
        machine={"cores": "2"},
        load_average=0.25,
        networks=(
            NetworkResult(
                sites=sites,
                cold_start=ColdStart(
                    ready_seconds=8.0, served_seconds=8.5, idle_cores=0.2, memory_bytes=2**30
                ),
                cases=(CaseResult(case=case, rounds=rounds(killed, [0.5, 0.6, 0.7])),),
                merges=(MergeRound(crossing_seconds=0.5, retained_seconds=1.25),),
            ),
        ),
    )


def test_cases_of_the_thesis_can_be_run_on_its_networks() -> None:
    for case in CASES:
        assert case.count <= len(SITE_NETWORKS[case.sites].sites) - 2
        if not isinstance(case.failed, int):
            assert len(SITE_NETWORKS[case.sites].parts(case.failed)) == 1
    assert [case.name for case in CASES if case.sites == 6] == [
        "1 of 6 (site3)",
        "2 of 6 (site1, site3)",
        "3 of 6",
    ]
    assert [case.failed for case in CASES if case.sites == 15] == [1, 2, 3, 4]
    assert max(case.count for case in CASES if case.sites == 25) == 8


def test_number_of_failed_sites_replaces_the_cases() -> None:
    settings = ReproductionSettings(sites=(25, 50), rounds=30, failed=8)
    (known,) = settings.cases(25)
    assert known.topics is not None
    assert settings.cases(50) == (FailureCase(sites=50, failed=8),)
    assert settings.steps == 2 * (1 + 30 * 3)


def test_report_has_median_and_worst_beside_the_thesis(tmp_path: Path) -> None:
    found = result(killed=[0.1, 0.2, 0.9])
    written = write_federation(found, tmp_path)
    assert {path.name for path in written} == {
        f"federation.{kind}" for kind in ("md", "html", "json", "csv", "png", "svg")
    }
    text = (tmp_path / "federation.md").read_text("utf-8")
    assert "| 8 of 25 | 0.20 / 0.90 s | 0.60 / 0.70 s | 2 to 5 minutes | 2 to 3 minutes |" in text
    assert "| 25 | 0.50 / 0.50 s | 1.25 / 1.25 s | up to 5 minutes |" in text
    assert "Lease: 0.5 s with 25 sites." in text
    assert "de Lacerda Machado" in text
    assert "0.20 / 0.90 s" in (tmp_path / "federation.html").read_text("utf-8")
    plain = json.loads((tmp_path / "federation.json").read_text("utf-8"))
    assert plain == json.loads(json.dumps(as_plain(found)))
    assert plain["networks"][0]["cases"][0]["rounds"][2]["gap_seconds"] == 0.9


def test_aims_are_compared_for_25_sites_only() -> None:
    *_, aims = report_tables(result(killed=[0.1, 0.2, 1.9]))
    assert [(row[1], row[3]) for row in aims.rows] == [
        ("0.20 s", "met"),
        ("1.90 s", "missed"),
        ("0.60 s", "met"),
        ("0.70 s", "met"),
        ("1.25 s", "missed"),
    ]
    assert not any("Aims" in t.title for t in report_tables(result(sites=15, killed=[0.1])))


def test_case_without_times_of_the_thesis_says_so() -> None:
    (failures, *_) = report_tables(result(sites=50, failed=16, killed=[0.1]))
    assert failures.rows[0][-2:] == ("not tested", "not tested")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fig5", "--rounds", "2"), "--sites, --rounds and --failed are for federation only"),
        (("federation", "--sites", "7"), "'7' is not one of '6', '15', '25', '50'"),
        (("federation", "--sites", "6", "--failed", "5"), "of 6 sites at most 4 can fail"),
    ],
)
def test_wrong_usage_is_explained(arguments: tuple[str, ...], message: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 2
    assert message in " ".join(found.stderr.split())


def test_command_measures_what_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ReproductionSettings]] = []

    def measure(sites: int, settings: ReproductionSettings, _report: object) -> NetworkResult:
        asked.append((sites, settings))
        return result(sites=sites, failed=2, killed=[0.1]).networks[0]

    monkeypatch.setattr(federation, "_measure", measure)
    monkeypatch.setattr(federation_report, "write_figure", lambda *_: [])  # plots take seconds
    out = str(tmp_path / "out")
    found = run(
        "federation", "--sites", "15", "--sites", "6", "--failed", "2", "--rounds", "4",
        "--out", out, "--json",
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    assert [sites for sites, _ in asked] == [6, 15]
    assert asked[0][1].rounds == 4
    printed = json.loads(found.stdout)
    assert [network["sites"] for network in printed["federation"]["networks"]] == [6, 15]
    assert f"{out}/federation.html" in printed["files"]
    shown = run("federation", "--quick", "--out", out)
    assert shown.exit_code == 0, shown.output
    assert (asked[-1][0], asked[-1][1].rounds) == (6, 1)
    assert "thesis: topic mesh" in shown.stdout


def test_failed_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object) -> NetworkResult:
        raise RuntimeError("the federator of site3 ended: no such file")

    monkeypatch.setattr(federation, "_measure", measure)
    found = run("federation", "--quick", "--out", str(tmp_path))
    assert found.exit_code != 0
    assert "the federator of site3 ended" in found.stderr
