"""The layout: a frame with four pages; all but the first are mounted when they are visited."""

from collections.abc import Iterable
from typing import Any

from dash import dcc, html

from firedex.dashboard import PREFIX, pages

__all__ = ["layout"]

PAGES = {
    "now": ("Now", PREFIX),
    "topology": ("Topology", f"{PREFIX}topology"),
    "subscriptions": ("Subscriptions", f"{PREFIX}subscriptions"),
    "history": ("History", f"{PREFIX}history"),
}


def layout(actions: Iterable[str]) -> html.Div:
    """The whole; what is mounted later lies in a store. Each action has a store as its output."""
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
    """What must be seen wherever on the page somebody is."""
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
