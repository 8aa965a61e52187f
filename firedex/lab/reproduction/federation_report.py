"""Files of the reproduction of the thesis on federation: report, data and plot."""

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from firedex.cli.output import as_json_text
from firedex.lab.reproduction.federation import (
    KINDS,
    CaseResult,
    FederationResult,
    NetworkResult,
)
from firedex.lab.reproduction.figure import Figure, Panel, Series
from firedex.lab.reproduction.report import STYLE, write_figure
from firedex.lab.reproduction.thesis import CITATION, COLD_START, PARTITION, ThesisTime

__all__ = ["ReportTable", "as_plain", "report_tables", "write_federation"]

TITLE = "Failures in a federation, compared with a thesis"
INTRODUCTION = (
    "Every site is a Mosquitto and a firedex federator on loopback, without root. In each round, "
    "federators are killed (their connections are closed) or stopped (they are silent) while three "
    "sites publish 33 events a second each. The measured time is the longest gap at any site that "
    "still runs, from any of these publishers: detection, new paths and 0.03 s between two events. "
    "The thesis states the time until its topic mesh has converged again, in minutes."
)
AIM_SITES, AIM_FAILED = 25, 8
AIMS = {"killed": (0.3, 1.0), "stopped": (0.7, 1.5)}
"""Aims for 25 sites on an idle machine: median and worst gap, in seconds."""
RETAINED_AIM_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table of the report; the first column is text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def report_tables(result: FederationResult) -> list[ReportTable]:
    """Return the tables of the report."""
    tables = [_failure_table(result), _merge_table(result), _start_table(result)]
    aims = _aim_rows(result)
    if aims:
        tables.append(
            ReportTable(
                title=f"Aims for {AIM_SITES} sites on an idle machine",
                header=("", "measured", "aim", ""),
                rows=tuple(aims),
            )
        )
    return tables


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} / {max(values):.2f} s"


def _stated(time: ThesisTime | None) -> str:
    return "not tested" if time is None else time.text


def _case_results(result: FederationResult) -> list[CaseResult]:
    return [found for network in result.networks for found in network.cases]


def _failure_table(result: FederationResult) -> ReportTable:
    return ReportTable(
        title="Longest gap at a surviving site, median / worst of all rounds",
        header=("failed sites", "killed", "stopped", "thesis: topic mesh", "thesis: overlay"),
        rows=tuple(
            (
                found.case.name,
                *(_spread(found.gaps(kind)) for kind in KINDS),
                _stated(found.case.topics),
                _stated(found.case.overlay),
            )
            for found in _case_results(result)
        ),
    )


def _merge_table(result: FederationResult) -> ReportTable:
    return ReportTable(
        title="After a partition, median / worst of all rounds",
        header=("sites", "events cross", "same retained messages", "thesis: overlay"),
        rows=tuple(
            (
                str(network.sites),
                _spread([found.crossing_seconds for found in network.merges]),
                _spread([found.retained_seconds for found in network.merges]),
                PARTITION.text,
            )
            for network in result.networks
        ),
    )


def _start_table(result: FederationResult) -> ReportTable:
    return ReportTable(
        title="Cold start of all processes on this machine, and idle federators",
        header=(
            "sites",
            "last federator ready",
            "all pairs served",
            "thesis: overlay",
            "idle CPU",
            "memory",
        ),
        rows=tuple(
            (
                str(network.sites),
                _seconds(network.cold_start.ready_seconds),
                _seconds(network.cold_start.served_seconds),
                COLD_START.text,
                f"{network.cold_start.idle_cores:.0%} of a core",
                f"{network.cold_start.memory_bytes / 2**20:.0f} MiB",
            )
            for network in result.networks
        ),
    )


def _aim_rows(result: FederationResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []

    def add(what: str, value: float, aim: float) -> None:
        rows.append((what, _seconds(value), f"at most {aim:g} s", _verdict(value, aim)))

    for found in _case_results(result):
        if (found.case.sites, found.case.count) == (AIM_SITES, AIM_FAILED):
            for kind, (middle, worst) in AIMS.items():
                gaps = found.gaps("killed" if kind == "killed" else "stopped")
                add(f"{AIM_FAILED} {kind}, median of {len(gaps)} rounds", median(gaps), middle)
                add(f"{AIM_FAILED} {kind}, worst of {len(gaps)} rounds", max(gaps), worst)
    for network in result.networks:
        if network.sites == AIM_SITES:
            worst = max(found.retained_seconds for found in network.merges)
            add("same retained messages after a merge, worst", worst, RETAINED_AIM_SECONDS)
    return rows


def _verdict(value: float, aim: float) -> str:
    return "met" if value <= aim else "missed"


# -- files -----------------------------------------------------------------------------------------


def as_plain(result: FederationResult) -> dict[str, Any]:
    """Return the result as plain data, with every round and the times of the thesis."""
    plain = asdict(result)
    plain["thesis"] = {
        "citation": CITATION,
        "cold_start": asdict(COLD_START),
        "partition": asdict(PARTITION),
    }
    for network, found in zip(plain["networks"], result.networks, strict=True):
        for case, its in zip(network["cases"], found.cases, strict=True):
            case["name"] = its.case.name
    return plain


def write_federation(result: FederationResult, folder: Path) -> list[Path]:
    """Write the report (Markdown, HTML), all rounds (JSON), the plot and its data; return paths."""
    markdown, page = folder / "federation.md", folder / "federation.html"
    data = folder / "federation.json"
    markdown.write_text(_markdown(result), "utf-8")
    page.write_text(_html(result), "utf-8")
    data.write_text(as_json_text(as_plain(result)) + "\n", "utf-8")
    return [markdown, page, data, *write_figure(_figure(result), folder)]


def _conditions(result: FederationResult) -> str:
    described = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    leases = ", ".join(
        f"{result.settings.lease_seconds(network.sites):g} s with {network.sites} sites"
        for network in result.networks
    )
    return (
        f"{result.settings.rounds} rounds of each kind. Lease: {leases}. Machine: {described}; "
        f"load average at the start {result.load_average:.1f}. "
        "Other load on the machine makes all times longer."
    )


def _markdown(result: FederationResult) -> str:
    lines = [f"# {TITLE}", "", INTRODUCTION, "", _conditions(result), ""]
    lines += [f"![{TITLE}](federation.svg)", ""]
    for table in report_tables(result):
        lines += [f"## {table.title}", "", f"| {' | '.join(table.header)} |"]
        lines.append("|" + "---|" * len(table.header))
        lines += [f"| {' | '.join(row)} |" for row in table.rows]
        lines.append("")
    lines += [f"The times of the thesis are from: {CITATION}.", ""]
    return "\n".join(lines)


def _html(result: FederationResult) -> str:
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        f"<title>{TITLE}</title>{STYLE}<h1>{TITLE}</h1>",
        f"<p>{html.escape(INTRODUCTION)}</p><p>{html.escape(_conditions(result))}</p>",
        f"<img src='federation.svg' alt='{TITLE}'>",
    ]
    for table in report_tables(result):
        parts.append(f"<h2>{html.escape(table.title)}</h2><table>")
        parts.append(
            "<tr>" + "".join(f"<th>{html.escape(cell)}" for cell in table.header) + "</tr>"
        )
        for row in table.rows:
            parts.append("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) + "</tr>")
        parts.append("</table>")
    parts.append(f"<p>The times of the thesis are from: {html.escape(CITATION)}.</p>")
    return "\n".join(parts) + "\n"


def _figure(result: FederationResult) -> Figure:
    return Figure(
        name="federation",
        title="Time without events after failures",
        panels=[_panel(network) for network in result.networks if network.cases],
        claims=(),
    )


def _panel(network: NetworkResult) -> Panel:
    cases = network.cases
    places = list(range(len(cases)))
    series = [
        Series(
            label=f"{kind}, median of the rounds",
            by="measurement",
            x=places,
            y=[median(found.gaps(kind)) for found in cases],
        )
        for kind in KINDS
    ]
    topics = [found.case.topics for found in cases]
    series.append(
        Series(
            label="thesis, topic mesh (range)",
            by="measurement",
            x=places,
            y=[None if t is None else (t.low_seconds + t.high_seconds) / 2 for t in topics],
            half_width=[
                None if t is None else (t.high_seconds - t.low_seconds) / 2 for t in topics
            ],
        )
    )
    return Panel(
        title=f"{network.sites} sites",
        x_label="failed sites",
        y_label="seconds",
        log_y=True,
        bars=True,
        ticks=[str(found.case.count) for found in cases],
        series=series,
    )
