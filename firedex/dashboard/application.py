"""The dashboard as a WSGI application: layout, scripts and security headers, without any data.

The visitor's browser fetches all data from the API of the service with the visitor's token, so
nothing here needs protection. The application is created once per process, at the first request.
All pages but the first are mounted when they are visited.
"""

import gzip
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from flask import Flask, Response, request

from firedex.dashboard import PREFIX, pages

__all__ = ["dashboard", "layout"]

PAGES = {
    "now": ("Now", PREFIX),
    "topology": ("Topology", f"{PREFIX}topology"),
    "subscriptions": ("Subscriptions", f"{PREFIX}subscriptions"),
    "history": ("History", f"{PREFIX}history"),
}


def layout(actions: Iterable[str]) -> html.Div:
    """Return the layout; a store contains the pages that are mounted later."""
    later: dict[str, Any] = {
        "topology": pages.topology(),
        "subscriptions": pages.subscriptions(),
        "history": pages.history(),
    }
    return html.Div(
        [
            dcc.Location(id="address", refresh=False),
            dcc.Store(id="later", data=later),
            dcc.Download(id="download"),
            *(dcc.Store(id=f"done-{name}") for name in actions),
            html.A("Skip to the content", href="#content", className="skip"),
            html.Div([_header(), _bands()], className="top"),
            _sign_in(),
            html.P(id="own", className="own", hidden=True),
            html.Main(
                [
                    html.Section(pages.now(), id="page-now", hidden=True),
                    html.Section(id="page-topology", hidden=True),
                    html.Section(id="page-subscriptions", hidden=True),
                    html.Section(id="page-history", hidden=True),
                ],
                id="content",
            ),
        ]
    )


def _header() -> html.Header:
    links = [
        dcc.Link(title, href=path, id=f"to-{name}", className="page-link")
        for name, (title, path) in PAGES.items()
    ]
    return html.Header(
        [
            html.H1("FireDeX", id="site"),
            html.Span(id="incident", className="incident"),
            html.Nav(links, id="pages", **pages.aria(label="Pages")),
            html.Span("connecting", id="connection", className="connection", role="status"),
            html.Button("Dark", id="theme", **pages.aria(label="Light or dark")),
            html.Span(id="visitor", className="visitor"),
            html.Button("Sign out", id="sign-out", hidden=True),
        ]
    )


def _bands() -> html.Div:
    """Return the messages that stay visible on every page."""
    return html.Div(
        [
            html.P(id="staleness", className="refusal", role="status", hidden=True),
            html.P(id="refusal", className="refusal", role="alert", hidden=True),
            html.P(id="done", className="done", role="status", hidden=True),
        ],
        className="bands",
    )


def _sign_in() -> html.Section:
    return html.Section(
        [
            html.H2("Sign in"),
            html.Label("Your token", htmlFor="token"),
            dcc.Input(id="token", type="password", autoComplete="off", placeholder="fdx_…"),
            html.Button("Sign in", id="sign-in", className="main"),
            html.P(id="sign-in-refusal", role="alert"),
        ],
        id="login",
        className="card",
        hidden=True,
    )


ASSETS = Path(__file__).parent / "assets"
WsgiApplication = Callable[[dict[str, Any], Any], Iterable[bytes]]
INPUT_FIELDS = (
    ("kind", "value"),
    ("weight", "value"),
    ("shape", "value"),
    ("deadline", "value"),
    ("phase", "value"),
    ("incident-title", "value"),
)
"""Inputs of a change; Apply requires the same values as the preview."""
INPUTS = tuple(State(*one) for one in INPUT_FIELDS)
ACTIONS: tuple[tuple[str, tuple[Input, ...], tuple[State, ...]], ...] = (
    ("go", (Input("address", "pathname"),), (State("address", "search"), State("later", "data"))),
    (
        "signIn",
        (Input("sign-in", "n_clicks"), Input("token", "n_submit")),
        (State("token", "value"),),
    ),
    ("signOut", (Input("sign-out", "n_clicks"),), ()),
    ("switchTheme", (Input("theme", "n_clicks"),), ()),
    ("chooseSubscription", (Input("subscriptions", "selectedRows"),), ()),
    (
        "previewSubscription",
        (Input("preview-change", "n_clicks"), Input("preview-removal", "n_clicks")),
        INPUTS,
    ),
    ("previewPhase", (Input("preview-phase", "n_clicks"),), INPUTS),
    ("edit", tuple(Input(*one) for one in INPUT_FIELDS), ()),
    ("apply", (Input("apply", "n_clicks"),), INPUTS),
    ("discard", (Input("discard", "n_clicks"),), ()),
    ("findSubscriptions", (Input("find", "value"),), ()),
    ("exportSubscriptions", (Input("export-subscriptions", "n_clicks"),), ()),
    ("chooseNode", (Input("network", "tapNodeData"),), ()),
    ("chooseSwitch", (Input("switches", "selectedRows"),), ()),
    ("chooseConfiguration", (Input("configurations", "selectedRows"),), ()),
    (
        "choosePeriod",
        (Input("period", "value"), Input("until", "value")),
        (),
    ),
    ("chooseMoment", (Input("moment", "value"),), ()),
    ("exportHistory", (Input("export-history", "n_clicks"),), ()),
    ("openReport", (Input("open-report", "n_clicks"),), ()),
)
"""Actions of the user; each is a function in the browser."""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}
<meta name="color-scheme" content="light dark">
<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>
"""


@cache
def dashboard() -> WsgiApplication:
    """Return the application, to be mounted at ``PREFIX``."""
    server = Flask("firedex.dashboard", static_folder=None)
    app = Dash(
        "firedex",
        server=server,  # type: ignore[arg-type]  # its types do not allow a Flask application
        title="FireDeX",
        update_title="",
        assets_folder=str(ASSETS),
        requests_pathname_prefix=PREFIX,
        routes_pathname_prefix="/",
        serve_locally=True,
        suppress_callback_exceptions=True,
        index_string=PAGE,
    )
    app.enable_dev_tools(debug=False, dev_tools_disable_version_check=True)
    app.layout = layout(name for name, *_ in ACTIONS)
    for name, inputs, states in ACTIONS:
        app.clientside_callback(  # type: ignore[no-untyped-call]
            ClientsideFunction("firedex", name),
            Output(f"done-{name}", "data"),
            *inputs,
            *states,
        )
    rules = "; ".join(
        (
            "default-src 'self'",
            " ".join(("script-src 'self'", *app.csp_hashes())),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "worker-src blob:",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )

    @server.after_request
    def add_headers(response: Response) -> Response:
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            response.close()  # close the file that was opened for it
        response.headers["Content-Security-Policy"] = rules
        if response.status_code == HTTPStatus.OK and request.accept_encodings.quality("gzip"):
            response.direct_passthrough = False
            response.set_data(_compress(response.get_data()))
            response.headers["Content-Encoding"] = "gzip"
            response.vary.add("Accept-Encoding")
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    application: WsgiApplication = server.wsgi_app
    return application


@lru_cache(maxsize=64)
def _compress(body: bytes) -> bytes:
    """Compress a script once: scripts are large and do not change."""
    return gzip.compress(body, 6)
