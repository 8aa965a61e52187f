"""Prometheus metrics, status and health of a federator over HTTP.

Requests are answered in threads; the state of the federator is read only in its event loop.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import CollectorRegistry

if TYPE_CHECKING:
    from firedex.federation.federator import Federator

__all__ = ["serve_metrics"]

STATUS_SECONDS = 10.0
"""A scrape fails if the event loop does not answer within this time."""


class _StatusReader:
    """Reads the status of a federator from other threads than that of its event loop."""

    def __init__(self, federator: "Federator", loop: asyncio.AbstractEventLoop) -> None:
        self._federator, self._loop = federator, loop

    def read(self) -> dict[str, Any]:
        """Return the status; raise TimeoutError if the event loop does not answer in time."""
        answer: Future[dict[str, Any]] = Future()

        def read_status() -> None:
            try:
                answer.set_result(self._federator.status())
            except Exception as error:  # whatever it is, the request fails with it
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(read_status)
        return answer.result(STATUS_SECONDS)


class _Collector:
    """Makes Prometheus metrics of a federator's status."""

    def __init__(self, reader: _StatusReader) -> None:
        self._reader = reader

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not need the status."""
        return []

    def collect(self) -> Iterator[Metric]:
        status = self._reader.read()
        for name, count in status["counters"].items():
            family = CounterMetricFamily(
                f"firedex_federation_{name}", f"Number of events: {name.replace('_', ' ')}."
            )
            family.add_metric([], count)
            yield family
        gauges: dict[str, tuple[str, dict[str, float]]] = {
            "site_reachable": (
                "Whether a site can be reached.",
                {site["id"]: float(site["reachable"]) for site in status["sites"]},
            ),
            "journal_events": (
                "Events that a site has not acknowledged.",
                dict(status["journal"]["by_site"]),
            ),
            "remote_filters": (
                "Filters that a site wants.",
                {site["id"]: float(site["filters"]) for site in status["sites"]},
            ),
        }
        for name, (description, values) in gauges.items():
            family_of_sites = GaugeMetricFamily(
                f"firedex_federation_{name}", description, labels=["site"]
            )
            for site, number in values.items():
                family_of_sites.add_metric([site], number)
            yield family_of_sites
        refusals = CounterMetricFamily(
            "firedex_federation_refused_connections",
            "Connections that were refused, by the name of the other site (empty: not known).",
            labels=["site"],
        )
        for site, number in status["refusals_by_site"].items():
            refusals.add_metric([site], number)
        yield refusals
        connected = GaugeMetricFamily(
            "firedex_federation_broker_connected", "Whether the broker session is up."
        )
        connected.add_metric([], float(status["broker"]["connected"]))
        yield connected


class _Pages:
    """The pages that a federator serves."""

    def __init__(self, federator: "Federator", loop: asyncio.AbstractEventLoop) -> None:
        self._federator = federator
        self._reader = _StatusReader(federator, loop)
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(self._reader))

    def answer(self, path: str) -> tuple[int, bytes, str]:
        """Return the HTTP status, the body and the content type of a page."""
        if not hasattr(self._federator, "node"):
            return 503, b"starting\n", "text/plain"
        if path == "/health":
            healthy = self._federator.broker.is_connected
            return (200, b"ok\n", "text/plain") if healthy else (503, b"no broker\n", "text/plain")
        try:
            if path == "/metrics":
                return 200, generate_latest(self._registry), "text/plain; version=0.0.4"
            if path == "/status":
                return 200, json.dumps(self._reader.read()).encode(), "application/json"
        except (TimeoutError, RuntimeError):  # the event loop is busy, or closed
            return 503, b"the federator does not answer\n", "text/plain"
        return 404, b"not found\n", "text/plain"


def serve_metrics(federator: "Federator", address: tuple[str, int]) -> Callable[[], None]:
    """Serve /metrics, /status and /health in threads; return a function that stops it.

    Call this in the event loop of the federator.
    """
    pages = _Pages(federator, asyncio.get_running_loop())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, content_type = pages.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop
