"""A run as files: Markdown and HTML with plots, for people; JSON, for machines."""

import base64
import html
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from firedex_emulation.emulation_orders import EmulationOrders
from firedex_emulation.measured_statistics import quantile
from firedex_emulation.measurement import Group, WayMeasurement
from firedex_emulation.plots import plot_classes, plot_over_time, plot_subscriptions
from firedex_emulation.ways import TITLES
from firedex_emulation.wording import delay_text, share_text

__all__ = ["write_report"]

Row = Sequence[str]
WORDY = {"verdict", "trouble", "value", "whose"}
"""Columns that hold sentences."""
MANIFOLD = 10.0
"""From here on an error reads better as a multiple."""
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:84rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}"
    "td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}"
    "th:first-child,td:first-child,.words{text-align:left}.words{white-space:normal;min-width:9rem}"
    "img{max-width:100%}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}"
    "img{background:#fff}}"
)


class _Pages:
    """The same content as Markdown and as HTML."""

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
        kinds = [" class=words" if name in WORDY else "" for name in head]
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
        # inside the page, which the dashboard shows without the files beside it
        data = base64.b64encode(path.read_bytes()).decode()
        self.html.append(f"<img src='data:image/svg+xml;base64,{data}' alt='{html.escape(text)}'>")


def write_report(
    orders: EmulationOrders, measured: Sequence[WayMeasurement], folder: Path
) -> list[Path]:
    """The report and its plots, beside the delivery records; what was written, the page first."""
    pages = _Pages(f"{orders.scenario.name}: measured beside predicted")
    _introduction(pages, orders, measured)
    written = [plot_classes(measured, folder), plot_subscriptions(measured, folder)]
    pages.heading("All ways")
    pages.table(*_ways(measured))
    pages.picture(written[0], "Delay and success of each class, measured and predicted")
    for way in measured:
        pages.heading(TITLES[way.way])
        for note in way.notes:
            pages.text(f"Note: {note}.")
        pages.table(CLASS_HEAD, [_class_row(row) for row in way.classes])
        if way.by_second:
            path = plot_over_time(way, folder)
            written.append(path)
            pages.picture(path, f"Delay and success over time, {TITLES[way.way]}")
        if way.reconfigurations:
            pages.table(*_changes(way))
            pages.text(_how_long(way))
        if way.outages:
            pages.table(*_outages(way))
    pages.heading("Every subscription")
    pages.picture(written[1], "Mean delay of each subscription, measured against predicted")
    for way in measured:
        pages.text(TITLES[way.way])
        pages.table(SUBSCRIPTION_HEAD, [_subscription_row(row) for row in way.subscriptions])
    _conditions(pages, orders, measured)
    page, text, plain = (folder / f"report.{kind}" for kind in ("html", "md", "json"))
    page.write_text("\n".join(pages.html), "utf-8")
    text.write_text("\n".join(pages.markdown), "utf-8")
    plain.write_text(json.dumps([way.as_plain() for way in measured], indent=2), "utf-8")
    return [page, text, plain, *written]


def _introduction(
    pages: _Pages, orders: EmulationOrders, measured: Sequence[WayMeasurement]
) -> None:
    transport = measured[0].transport if measured else orders.scenario.transport
    over = "MQTT-SN over UDP" if transport == "udp" else "MQTT over TCP"
    pages.text(
        f"{orders.seconds:g} s of traffic each way, the same events each time "
        f"(seed {orders.seed}), {over}, on {orders.where}. Delays are of delivered events, from "
        "publishing to the subscriber's callback, by one clock. Predictions are the service's, "
        "made when each plan was, and count for the events under it; those of utility are of the "
        "last plan. Intervals are 95 % (batch means). An error is how far the prediction is above "
        "(+) or below (-) what was measured."
    )


def _ways(measured: Sequence[WayMeasurement]) -> tuple[Row, Sequence[Row]]:
    head = ("way", "utility", "predicted", "in time", "predicted", "highest class", "its median")
    rows = []
    for way in measured:
        top = way.classes[0] if way.classes else None
        rows.append(
            (
                TITLES[way.way],
                share_text(way.utility.achieved),
                share_text(way.utility.achieved_predicted),
                share_text(way.utility.timely),
                share_text(way.utility.timely_predicted),
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


def _class_row(row: Group) -> Row:
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


def _subscription_row(row: Group) -> Row:
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


def _error_text(row: Group) -> str:
    measured, predicted = row.delay_mean_seconds, row.delay_mean_predicted_seconds
    if not measured or predicted is None:
        return "–"
    times = predicted / measured
    return f"{times:.0f} times" if times > MANIFOLD else f"{times - 1:+.0%}"


def _with_interval(
    value: float | None, half: float | None, text: Callable[[float | None], str]
) -> str:
    return text(value) if value is None or half is None else f"{text(value)} ± {text(half)}"


def _changes(way: WayMeasurement) -> tuple[Row, Sequence[Row]]:
    head = (
        "change",
        "at",
        "rules acknowledged after",
        "all moved after",
        "lost of class 0",
        "trouble",
    )
    rows = [
        (
            row.what,
            f"{row.at_seconds:.1f} s",
            delay_text(row.acknowledged_seconds),
            delay_text(row.moved_seconds),
            "–" if row.lost_highest is None else str(row.lost_highest),
            row.trouble or "",
        )
        for row in way.reconfigurations
    ]
    return head, rows


def _how_long(way: WayMeasurement) -> str:
    """The 95th percentiles of what changes took."""

    def within(what: str, times: Sequence[float | None]) -> str:
        known = np.array([each for each in times if each is not None])
        if not len(known):
            return f"none was seen {what}"
        return f"{what} within {delay_text(quantile(known, 0.95))}"

    changes = way.reconfigurations
    acknowledged = within("acknowledged", [row.acknowledged_seconds for row in changes])
    moved = within("carried out by all clients", [row.moved_seconds for row in changes])
    return f"95 % of changes: {acknowledged}; {moved}."


def _outages(way: WayMeasurement) -> tuple[Row, Sequence[Row]]:
    head = ("failure", "at", "class", "without for", "lost", "whose")
    rows = [
        (row.what, f"{row.at_seconds:.1f} s", str(row.priority), delay_text(row.seconds))
        + (str(row.lost), row.whose)
        for row in way.outages
    ]
    return head, rows


def _conditions(pages: _Pages, orders: EmulationOrders, measured: Sequence[WayMeasurement]) -> None:
    """What the machine and the links were like: measured, or as they were set up."""
    pages.heading("Conditions")
    rows: list[Row] = [("machine", f"{platform.system()} {platform.release()}")]
    for way in measured:
        name = TITLES[way.way]
        rows.append((f"{name}: host time on the idle network", delay_text(way.host_seconds)))
        rows.append((f"{name}: the machine stood still", delay_text(way.stalled_seconds)))
    built = orders.as_run("firedex")
    for switch in built.network.switches:
        if switch.managed and switch.buffer:
            rows.append(
                (
                    f"switch {switch.id}",
                    f"{switch.bandwidth_bits_per_second / 1e6:g} Mbit/s, "
                    f"{switch.burst_bytes:g} bytes pass an idle link at once, each class is "
                    f"guaranteed {switch.guaranteed_bits_per_second:g} bit/s and queues "
                    f"{switch.buffer.packets} packets ({switch.buffer.kind})",
                )
            )
    pages.table(("what", "value"), rows)
    pages.text(
        "Host time is the median of probes sent one by one before the traffic, less what the links "
        "take; it is part of every predicted delay shown here."
    )
