"""The report of an emulation as files: Markdown, HTML with plots, and JSON."""

import base64
import html
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from firedex_emulation.measurement.comparison import DeliveryStatistics, ModeMeasurement
from firedex_emulation.measurement.statistics import quantile
from firedex_emulation.report.plots import plot_classes, plot_over_time, plot_subscriptions
from firedex_emulation.report.tables import delay_text, share_text
from firedex_emulation.testbed.emulation_settings import EmulationSettings
from firedex_emulation.testbed.modes import MODE_TITLES

__all__ = ["write_report"]

Row = Sequence[str]
TEXT_COLUMNS = {"verdict", "error", "value", "subscription"}
"""Columns with text, aligned to the left."""
LARGEST_PERCENTAGE_RATIO = 10.0
"""A larger error is shown as a multiple."""
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:84rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}"
    "td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}"
    "th:first-child,td:first-child,.words{text-align:left}.words{white-space:normal;min-width:9rem}"
    "img{max-width:100%}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}"
    "img{background:#fff}}"
)


class _Pages:
    """Collects the same content as Markdown and as HTML."""

    def __init__(self, title: str) -> None:
        self.markdown = [f"# {title}", ""]
        self.html = [
            "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>",
            f"<title>{html.escape(title)}</title><style>{STYLE}</style>",
            f"<h1>{html.escape(title)}</h1>",
        ]

    def heading(self, text: str) -> None:
        self.markdown += [f"## {text}", ""]
        self.html.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        self.markdown += [text, ""]
        self.html.append(f"<p>{html.escape(text)}</p>")

    def table(self, head: Row, rows: Sequence[Row]) -> None:
        self.markdown += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        self.markdown += [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
        ]
        self.markdown.append("")
        kinds = [" class=words" if name in TEXT_COLUMNS else "" for name in head]
        cells = "".join(
            f"<th{kind}>{html.escape(name)}</th>" for name, kind in zip(head, kinds, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)
            )
            + "</tr>"
            for row in rows
        )
        self.html.append(f"<table><tr>{cells}</tr>{body}</table>")

    def picture(self, path: Path, text: str) -> None:
        self.markdown += [f"![{text}]({path.name})", ""]
        # embedded: the dashboard shows the page without its neighbouring files
        data = base64.b64encode(path.read_bytes()).decode()
        self.html.append(f"<img src='data:image/svg+xml;base64,{data}' alt='{html.escape(text)}'>")


def write_report(
    settings: EmulationSettings, measured: Sequence[ModeMeasurement], folder: Path
) -> list[Path]:
    """Write the report and its plots; return all written files, the HTML page first."""
    pages = _Pages(f"{settings.scenario.name}: measured and predicted")
    _add_introduction(pages, settings, measured)
    written = [plot_classes(measured, folder), plot_subscriptions(measured, folder)]
    pages.heading("All modes")
    pages.table(*_modes_table(measured))
    pages.picture(written[0], "Delay and success of each class, measured and predicted")
    for mode in measured:
        pages.heading(MODE_TITLES[mode.mode])
        for note in mode.notes:
            pages.text(f"Note: {note}.")
        pages.table(CLASS_HEAD, [_class_row(row) for row in mode.classes])
        if mode.by_second:
            path = plot_over_time(mode, folder)
            written.append(path)
            pages.picture(path, f"Delay and success over time, {MODE_TITLES[mode.mode]}")
        if mode.reconfigurations:
            pages.table(*_changes_table(mode))
            pages.text(_change_times(mode))
        if mode.outages:
            pages.table(*_outages_table(mode))
    pages.heading("All subscriptions")
    pages.picture(written[1], "Mean delay of each subscription, measured against predicted")
    for mode in measured:
        pages.text(MODE_TITLES[mode.mode])
        pages.table(SUBSCRIPTION_HEAD, [_subscription_row(row) for row in mode.subscriptions])
    _add_conditions(pages, settings, measured)
    page, text, plain = (folder / f"report.{kind}" for kind in ("html", "md", "json"))
    page.write_text("\n".join(pages.html), "utf-8")
    text.write_text("\n".join(pages.markdown), "utf-8")
    plain.write_text(json.dumps([mode.as_plain() for mode in measured], indent=2), "utf-8")
    return [page, text, plain, *written]


def _add_introduction(
    pages: _Pages, settings: EmulationSettings, measured: Sequence[ModeMeasurement]
) -> None:
    transport = measured[0].transport if measured else settings.scenario.transport
    transport_name = "MQTT-SN over UDP" if transport == "udp" else "MQTT over TCP"
    pages.text(
        f"{settings.seconds:g} s of traffic in each mode, with the same events each time "
        f"(seed {settings.seed}), {transport_name}, on {settings.where}. A delay is the time from "
        "publishing to the subscriber's callback, of delivered events only, measured with one "
        "clock. A prediction is the one that the configuration service computed with the "
        "configuration that was active when the event was published; predicted utilities are "
        "those of the last configuration. Intervals are 95 % confidence intervals (batch means). "
        "The error is the predicted value relative to the measured one."
    )


def _modes_table(measured: Sequence[ModeMeasurement]) -> tuple[Row, Sequence[Row]]:
    head = (
        "mode",
        "utility",
        "predicted",
        "timely utility",
        "predicted",
        "class 0 delivered",
        "class 0 median delay",
    )
    rows = []
    for mode in measured:
        top = mode.classes[0] if mode.classes else None
        rows.append(
            (
                MODE_TITLES[mode.mode],
                share_text(mode.utility.achieved),
                share_text(mode.utility.achieved_predicted),
                share_text(mode.utility.timely),
                share_text(mode.utility.timely_predicted),
                share_text(top.success_measured if top else None),
                delay_text(top.delay_p50_seconds if top else None),
            )
        )
    return head, rows


CLASS_HEAD = (
    "class",
    "verdict",
    "sent",
    "delivered",
    "predicted",
    "mean",
    "predicted",
    "error",
    "independent model",
    "p50",
    "p95",
    "predicted",
    "p99",
)


def _class_row(row: DeliveryStatistics) -> Row:
    return (
        str(row.priority),
        row.verdict,
        str(row.sent),
        _with_interval(row.success_measured, row.success_half_width, share_text),
        share_text(row.success_predicted),
        _with_interval(row.delay_mean_seconds, row.delay_half_width_seconds, delay_text),
        delay_text(row.delay_mean_predicted_seconds),
        _error_text(row),
        delay_text(row.delay_mean_independent_seconds),
        delay_text(row.delay_p50_seconds),
        delay_text(row.delay_p95_seconds),
        delay_text(row.delay_p95_predicted_seconds),
        delay_text(row.delay_p99_seconds),
    )


SUBSCRIPTION_HEAD = (
    "subscriber",
    "filter",
    "class",
    "verdict",
    "drop rate",
    "delivered",
    "predicted",
    "mean",
    "predicted",
    "error",
    "p95",
    "predicted",
    "in time",
)


def _subscription_row(row: DeliveryStatistics) -> Row:
    return (
        row.subscriber or "",
        row.filter or "",
        str(row.priority),
        row.verdict,
        share_text(row.drop_rate),
        _with_interval(row.success_measured, row.success_half_width, share_text),
        share_text(row.success_predicted),
        _with_interval(row.delay_mean_seconds, row.delay_half_width_seconds, delay_text),
        delay_text(row.delay_mean_predicted_seconds),
        _error_text(row),
        delay_text(row.delay_p95_seconds),
        delay_text(row.delay_p95_predicted_seconds),
        share_text(row.timely_measured),
    )


def _error_text(row: DeliveryStatistics) -> str:
    measured, predicted = row.delay_mean_seconds, row.delay_mean_predicted_seconds
    if not measured or predicted is None:
        return "–"
    times = predicted / measured
    return f"{times:.0f} times" if times > LARGEST_PERCENTAGE_RATIO else f"{times - 1:+.0%}"


def _with_interval(
    value: float | None, half: float | None, text: Callable[[float | None], str]
) -> str:
    return text(value) if value is None or half is None else f"{text(value)} ± {text(half)}"


def _changes_table(mode: ModeMeasurement) -> tuple[Row, Sequence[Row]]:
    head = (
        "change",
        "at",
        "rules acknowledged after",
        "applied by all clients after",
        "class 0 events lost",
        "error",
    )
    rows = [
        (
            row.description,
            f"{row.at_seconds:.1f} s",
            delay_text(row.acknowledged_seconds),
            delay_text(row.moved_seconds),
            "–" if row.lost_highest is None else str(row.lost_highest),
            row.error_message or "",
        )
        for row in mode.reconfigurations
    ]
    return head, rows


def _change_times(mode: ModeMeasurement) -> str:
    """Return a sentence with the 95th percentiles of the times that changes took."""

    def percentile_text(what: str, times: Sequence[float | None]) -> str:
        known = np.array([each for each in times if each is not None])
        if not len(known):
            return f"none {what}"
        return f"{what} within {delay_text(quantile(known, 0.95))}"

    changes = mode.reconfigurations
    acknowledged = percentile_text("acknowledged", [row.acknowledged_seconds for row in changes])
    moved = percentile_text("applied by all clients", [row.moved_seconds for row in changes])
    return f"95 % of changes: {acknowledged}; {moved}."


def _outages_table(mode: ModeMeasurement) -> tuple[Row, Sequence[Row]]:
    head = ("failure", "at", "class", "outage", "events lost", "subscription")
    rows = [
        (row.description, f"{row.at_seconds:.1f} s", str(row.priority), delay_text(row.seconds))
        + (str(row.lost), row.subscription)
        for row in mode.outages
    ]
    return head, rows


def _add_conditions(
    pages: _Pages, settings: EmulationSettings, measured: Sequence[ModeMeasurement]
) -> None:
    """Add the properties of machine and links, measured or configured."""
    pages.heading("Conditions")
    rows: list[Row] = [("machine", f"{platform.system()} {platform.release()}")]
    for mode in measured:
        name = MODE_TITLES[mode.mode]
        rows.append((f"{name}: host time on the idle network", delay_text(mode.host_seconds)))
        rows.append((f"{name}: machine stalled for", delay_text(mode.stalled_seconds)))
    built = settings.scenario_for_mode("firedex")
    for switch in built.network.switches:
        if switch.managed and switch.buffer:
            rows.append(
                (
                    f"switch {switch.id}",
                    f"{switch.bandwidth_bits_per_second / 1e6:g} Mbit/s, "
                    f"{switch.burst_bytes:g} bytes burst, "
                    f"{switch.guaranteed_bits_per_second:g} bit/s guaranteed and a queue of "
                    f"{switch.buffer.packets} packets for each class ({switch.buffer.kind})",
                )
            )
    pages.table(("property", "value"), rows)
    pages.text(
        "Host time is the median delay of single probe events before the traffic, without the time "
        "that links take. It is included in every predicted delay shown here."
    )
