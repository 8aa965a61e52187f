"""The four pages, without any data."""

from typing import Any

import dash_ag_grid as dag
import dash_cytoscape as cyto
from dash import dcc, html
from dash.development.base_component import Component

__all__ = ["aria", "history", "now", "subscriptions", "topology"]

SECONDS = {"function": "firedexSeconds(params.value)"}
SHARE = {"function": "firedexShare(params.value)"}
THEME = (
    "themeQuartz.withParams({fontSize: 14, cellHorizontalPadding: 8, "
    "backgroundColor: 'var(--card)', "
    "foregroundColor: 'var(--ink)', headerTextColor: 'var(--soft)', borderColor: 'var(--line)', "
    "accentColor: 'var(--accent)'})"
)
TIME = {"function": "firedexClock(params.value)"}
UTILITIES = ["log", "linear", "capped", "power", "piecewise-linear"]


def aria(**attributes: str) -> Any:
    """Return ARIA attributes, which the types of the components do not include."""
    return {f"aria-{name}": value for name, value in attributes.items()}


def _card(title: str, name: str, *before: Component, wide: bool = False) -> html.Section:
    return html.Section(
        [html.H2(title, id=f"{name}-title"), *before, html.Div(id=name)],
        className="card wide" if wide else "card",
        **aria(labelledby=f"{name}-title"),
    )


def _note(name: str) -> html.P:
    return html.P(id=name, className="legend")


def now() -> list[Component]:
    """Return the page Now: alerts, figures, classes, links and health."""
    return [
        html.P("Loading", id="verdict", className="verdict unknown", role="status"),
        _card("Alerts", "alerts", html.P(id="alerts-said", className="legend", role="status")),
        html.Div(id="figures", className="figures"),
        html.P(id="plan", className="legend"),
        html.Div(
            [
                _card("Missed deadlines", "late", wide=True),
                _card("Classes", "classes", _note("classes-note"), wide=True),
                _card("Links", "links"),
                _card("Health", "parts"),
            ],
            className="cards",
        ),
    ]


def _grid(
    name: str, columns: list[dict[str, Any]], key: str, label: str, height: str = "30rem"
) -> html.Div:
    grid = dag.AgGrid(
        id=name,
        columnDefs=columns,
        rowData=[],
        getRowId=key,
        defaultColDef={
            "resizable": True,
            "minWidth": 86,
            "wrapHeaderText": True,
            "autoHeaderHeight": True,
        },
        columnSize="responsiveSizeToFit",
        dashGridOptions={
            "theme": {"function": THEME},
            "rowSelection": {
                "mode": "singleRow",
                "checkboxes": False,
                "enableClickSelection": True,
            },
            "animateRows": False,
            "loading": False,
        },
        style={"height": height},
    )
    return html.Div(grid, role="region", **aria(label=label))


def _column(field: str, title: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "headerName": title, **more}


def _number(field: str, title: str, formatter: Any = None, **more: Any) -> dict[str, Any]:
    column = _column(field, title, type="numericColumn", **more)
    return {**column, "valueFormatter": formatter} if formatter else column


def topology() -> list[Component]:
    """Return the page Topology: switches, links and hosts with their load."""
    return [
        html.Div(
            [
                html.Section(
                    [
                        html.H2("Network"),
                        html.P(id="network-legend", className="legend"),
                        cyto.Cytoscape(
                            id="network",
                            layout={"name": "preset", "fit": True, "padding": 30},
                            elements=[],
                            stylesheet=[],
                            minZoom=0.2,
                            maxZoom=3,
                            autoRefreshLayout=True,
                            responsive=True,
                            style={"width": "100%", "height": "30rem"},
                        ),
                    ],
                    className="card wide",
                ),
                html.Section(
                    [
                        html.H2("Switches"),
                        _grid(
                            "switches",
                            [
                                _column("id", "Switch"),
                                _column("state", "State"),
                                _number("load", "Load", SHARE),
                                _column("load_is", "Source of load"),
                                _column("bandwidth", "Bandwidth"),
                                _number("hosts", "Hosts"),
                            ],
                            "params.data.id",
                            "Switches",
                            "18rem",
                        ),
                    ],
                    className="card wide",
                ),
                _card("Select a switch", "switch", wide=True),
            ],
            className="cards",
        )
    ]


def subscriptions() -> list[Component]:
    """Return the page Subscriptions, with forms to preview and apply a change."""
    columns = [
        _number(
            "late_rank",
            "Late",
            {"function": "params.value ? 'late' : ''"},
            sort="desc",
            minWidth=78,
            maxWidth=90,
            cellClassRules={"late": "params.value"},
        ),
        _number("priority", "Class", minWidth=56, maxWidth=90),
        _column("filter", "Filter", minWidth=120, flex=2),
        _column("subscriber", "Subscriber", minWidth=94, flex=1),
        _column("utility_words", "Utility", minWidth=90),
        _number("weight", "Weight"),
        _number("deadline_seconds", "Deadline", SECONDS),
        _number("delay_p95_seconds", "p95 measured", SECONDS),
        _number("predicted_delay_p95_seconds", "p95 predicted", SECONDS),
        _number("success_rate", "Success measured", SHARE),
        _number("predicted_success_rate", "Success predicted", SHARE),
    ]
    return [
        html.Div(
            [
                html.Section(
                    [
                        html.H2("Subscriptions"),
                        html.Label(
                            "Search (any words; click a column heading to sort)", htmlFor="find"
                        ),
                        dcc.Input(id="find", type="text", placeholder="floor/7 crew"),
                        _note("subscriptions-note"),
                        _grid(
                            "subscriptions",
                            columns,
                            "params.data.subscriber + ' ' + params.data.filter",
                            "Subscriptions",
                        ),
                        html.Button("Export CSV", id="export-subscriptions"),
                    ],
                    className="card wide",
                ),
                _change_form(),
                _phase_form(),
                _preview(),
            ],
            className="cards",
        )
    ]


def _choice(title: str, choice: dcc.RadioItems) -> html.Div:
    """Return a labelled group, because there is no single field for a label."""
    name = f"{choice.id}-label"  # type: ignore[attr-defined]  # set by its arguments
    label = html.Span(title, id=name, className="soft")
    return html.Div([label, choice], role="group", **aria(labelledby=name))


def _decimal(name: str) -> dcc.Input:
    """Return a text field for a number; a number field would hide invalid input like "abc"."""
    # A numeric keyboard on tablets; the types of Dash do not include this property.
    more: Any = {"inputMode": "decimal"}
    return dcc.Input(id=name, type="text", autoComplete="off", **more)


def _change_form() -> html.Section:
    return html.Section(
        [
            html.H2("Change a subscription"),
            html.P("Select one in the table.", id="chosen"),
            _choice(
                "Utility function (how the utility grows with the success rate)",
                dcc.RadioItems(id="kind", options=UTILITIES, inline=True),
            ),
            html.Div(
                [
                    html.Label(id="shape-label", htmlFor="shape"),
                    dcc.Input(id="shape", type="text"),
                ],
                id="shape-field",
                hidden=True,
            ),
            html.Label("Weight of the utility", htmlFor="weight"),
            _decimal("weight"),
            html.Label("Deadline in seconds (leave empty for no deadline)", htmlFor="deadline"),
            _decimal("deadline"),
            html.Div(
                [
                    html.Button("Preview the effect", id="preview-change", className="main"),
                    html.Button("Preview the removal", id="preview-removal"),
                ],
                className="buttons",
            ),
        ],
        id="change-form",
        className="card",
    )


def _phase_form() -> html.Section:
    return html.Section(
        [
            html.H2("Change the phase"),
            html.P(id="phases"),
            html.Label("Phase", htmlFor="phase"),
            dcc.Input(id="phase", type="text", list="known-phases"),
            html.Datalist(id="known-phases"),
            html.Div(
                [
                    html.Label("Title of the incident", htmlFor="incident-title"),
                    dcc.Input(id="incident-title", type="text"),
                ],
                id="opening",
                hidden=True,
            ),
            html.Div(
                html.Button("Preview the effect", id="preview-phase", className="main"),
                className="buttons",
            ),
        ],
        id="phase-form",
        className="card",
        hidden=True,
    )


def _preview() -> html.Section:
    return html.Section(
        [
            html.H2("Predicted effect"),
            html.Div(id="preview", **aria(live="polite")),
            html.Div(
                [
                    html.Button("Apply", id="apply", className="main", disabled=True),
                    html.Button("Discard", id="discard"),
                ],
                className="buttons",
            ),
        ],
        id="preview-card",
        className="card wide",
        hidden=True,
        tabIndex=-1,
    )


def _period() -> html.Div:
    lengths = {"10 minutes": 600, "an hour": 3600, "6 hours": 21600, "a day": 86400}
    choice = dcc.RadioItems(
        id="period",
        options=[{"label": label, "value": value} for label, value in lengths.items()],
        value=600,
        inline=True,
    )
    return _choice("Period", choice)


def history() -> list[Component]:
    """Return the page History: charts, configurations and their differences."""
    return [
        html.Div(
            [
                html.Section(
                    [
                        html.H2("Delay and success"),
                        _period(),
                        html.Label(
                            "Show data until (hours:minutes; leave empty for the current time)",
                            htmlFor="until",
                        ),
                        dcc.Input(id="until", type="text", debounce=True, placeholder="14:02"),
                        _note("until-note"),
                        dcc.Graph(
                            id="replay",
                            figure={"data": [], "layout": {"height": 400}},
                            config={"displayModeBar": False, "responsive": True},
                            style={"height": "420px"},
                        ),
                        html.P("Time", id="moment-label", className="soft"),
                        dcc.Slider(
                            id="moment",
                            min=0,
                            max=1,
                            step=1,
                            value=1,
                            marks=None,
                            updatemode="drag",
                            allow_direct_input=False,
                        ),
                        html.Div(id="at-moment"),
                        html.Div(
                            [
                                html.Button("Export CSV", id="export-history"),
                                html.Button("Validation report", id="open-report"),
                            ],
                            className="buttons",
                        ),
                    ],
                    className="card wide",
                ),
                html.Section(
                    [
                        html.H2("Configurations"),
                        _grid(
                            "configurations",
                            [
                                _number("version", "Version", maxWidth=90),
                                _column(
                                    "created_at",
                                    "When",
                                    valueFormatter=TIME,
                                    minWidth=130,
                                    maxWidth=150,
                                ),
                                _column("reason", "Why", minWidth=260, tooltipField="reason"),
                                _column("state", "State", minWidth=100, maxWidth=110),
                                _number("planned_seconds", "Planning time", SECONDS, maxWidth=120),
                                _number("pushed_seconds", "Push time", SECONDS, maxWidth=120),
                            ],
                            "String(params.data.version)",
                            "Configurations",
                            "26rem",
                        ),
                    ],
                    className="card wide",
                ),
                _card("What changed (select a configuration)", "difference", wide=True),
            ],
            className="cards",
        )
    ]
