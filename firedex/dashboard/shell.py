"""The pages as a WSGI application: scripts and layout, the same for everybody, no data.

Everything that changes is fetched by the visitor's browser from the service's interface, with the
visitor's token; here is nothing to protect. Made once for a process, when somebody first asks.
"""

import gzip
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State
from flask import Flask, Response, request

from firedex.dashboard import PREFIX
from firedex.dashboard.layout import layout

__all__ = ["dashboard"]

ASSETS = Path(__file__).parent / "assets"
WsgiApplication = Callable[[dict[str, Any], Any], Iterable[bytes]]
TYPED = (
    ("kind", "value"),
    ("weight", "value"),
    ("shape", "value"),
    ("deadline", "value"),
    ("phase", "value"),
    ("incident-title", "value"),
)
"""What a change is made of; what is applied must be what they were when it was asked about."""
INPUTS = tuple(State(*one) for one in TYPED)
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
    ("edit", tuple(Input(*one) for one in TYPED), ()),
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
"""What people do, each a function of ours in the browser."""
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
    """The application, to be mounted at ``PREFIX``."""
    server = Flask("firedex.dashboard", static_folder=None)
    app = Dash(
        "firedex",
        server=server,  # type: ignore[arg-type]  # its types know no application of one's own
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
    def guard(response: Response) -> Response:
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            response.close()  # its file was opened all the same
        response.headers["Content-Security-Policy"] = rules
        if response.status_code == HTTPStatus.OK and request.accept_encodings.quality("gzip"):
            response.direct_passthrough = False
            response.set_data(_packed(response.get_data()))
            response.headers["Content-Encoding"] = "gzip"
            response.vary.add("Accept-Encoding")
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    made: WsgiApplication = server.wsgi_app
    return made


@lru_cache(maxsize=64)
def _packed(body: bytes) -> bytes:
    """Scripts are large and always the same: each is packed once."""
    return gzip.compress(body, 6)
