"""Time of the first useful paint and of updates of the dashboard, in a headless browser.

The site has 50 subscribers with 100 subscriptions each. Every subscriber sends one report per
second, in a separate request.
"""

import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from selenium import webdriver

from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Report
from tests.support.browser import headless_browser, missing_browser_reason

__all__ = ["dashboard_speed"]

SUBSCRIBERS, SUBSCRIPTIONS = 50, 100
VISITS, UPDATES, WATCH_SECONDS = 5, 20, 20.0
TIMEOUT_SECONDS = 120.0
SENDERS = 7
"""Maximum number of concurrent requests with reports."""
MAX_FIRST_PAINT_SECONDS, MAX_UPDATE_SECONDS, MAX_FRAME_GAP_SECONDS = 2.0, 1.5, 0.25
PROGRAM = "from firedex.service.commands.serve import serve; serve()"
SITE = """\
name: crowd
transport: tcp
topics: []
network:
  switches:
    - {id: lan, managed: false, bandwidth_bits_per_second: 10000000000}
    - {id: core, managed: true, bandwidth_bits_per_second: 20000000}
  broker: {id: edge}
"""
FRAMES = """
window.gaps = [];
let last = performance.now();
const next = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(next); };
requestAnimationFrame(next);
"""


class _Service:
    def __init__(self, port: int) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}"

    def request(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            body_text = response.read()
        finally:
            connection.close()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {body_text[:200]!r}")
        return json.loads(body_text)


def dashboard_speed(report: Report) -> BenchmarkResult:
    """Measure the first useful paint, the update latency, and the frame gaps of a large table."""
    missing = missing_browser_reason()
    if missing:
        raise RuntimeError(missing)
    with _running_service() as service, headless_browser() as driver:
        report(f"registering {SUBSCRIBERS} subscribers of {SUBSCRIPTIONS} subscriptions")
        _register(service)
        plan = service.request("GET", "/v1/configuration")
        flows = [{**flow, "version": plan["version"]} for flow in plan["flows"]]
        with _send_reports(service, flows):
            report(f"visiting {VISITS} times with an empty cache")
            paints = [_first_paint(driver, service.url) for _ in range(VISITS)]
            report(f"{UPDATES} updates")
            delays = [_update(driver, service, flows[0], n) for n in range(UPDATES)]
            report(f"watching the table of subscriptions for {WATCH_SECONDS:g} s")
            gaps = _frame_gaps(driver, service.url)
    return BenchmarkResult(
        name="dashboard",
        comparisons=(
            _compare_with_limit("first useful paint, cold", paints, MAX_FIRST_PAINT_SECONDS),
            _compare_with_limit("from a report to the page", delays, MAX_UPDATE_SECONDS),
            Comparison(
                what=f"{SUBSCRIBERS * SUBSCRIPTIONS} subscriptions, an update a second: frames",
                left="99th percentile between two frames",
                left_value=sorted(gaps)[int(0.99 * len(gaps))],
                right="limit",
                right_value=MAX_FRAME_GAP_SECONDS,
                unit="s",
                at_most=1.0,
            ),
        ),
    )


def _compare_with_limit(what: str, measured: list[float], limit: float) -> Comparison:
    return Comparison(
        what=what,
        left=f"median of {len(measured)} (most {max(measured):.2f})",
        left_value=statistics.median(measured),
        right="limit",
        right_value=limit,
        unit="s",
        at_most=1.0,
    )


@contextmanager
def _running_service() -> Iterator[_Service]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site.yaml"
        site.write_text(SITE, "utf-8")
        command = [sys.executable, "-c", PROGRAM, str(site), "--open"]
        command += ["--listen", f"127.0.0.1:{port}", "--state", f"{folder}/state.sqlite"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # a program of this project
        service = _Service(port)
        try:
            _wait_until(lambda: _is_healthy(service), "the service")
            yield service
        finally:
            process.terminate()
            process.wait(30)


def _is_healthy(service: _Service) -> bool:
    try:
        return bool(service.request("GET", "/v1/health")["status"] == "ok")
    except OSError:
        return False


def _wait_until(ready: Any, what: str) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while not ready():
        if time.monotonic() > until:
            raise RuntimeError(f"timeout of {TIMEOUT_SECONDS:g} s while waiting for {what}")
        time.sleep(0.01)


def _register(service: _Service) -> None:
    topics = [f"floor/{n}/sensor" for n in range(SUBSCRIPTIONS)]
    service.request(
        "PUT",
        "/v1/publishers/sensors",
        {
            "publisher": {
                "id": "sensors",
                "switch": "lan",
                "publications": [{"topic": name, "rate_per_second": 0.2} for name in topics],
            },
            "topics": [{"name": name, "event_bytes": 100} for name in topics],
        },
    )
    last = 0
    for n in range(SUBSCRIBERS):
        subscriptions = [
            {
                "filter": name,
                "utility": {"kind": "log", "weight": 1.0 + (n + m) % 10},
                "deadline_seconds": 1.0,
            }
            for m, name in enumerate(topics)
        ]
        subscriber = {"id": f"crew-{n}", "switch": "core", "subscriptions": subscriptions}
        body = {"subscriber": subscriber, "address": f"10.0.{n // 250}.{n % 250 + 1}"}
        last = service.request("PUT", f"/v1/subscribers/crew-{n}", body)["change"]
    _wait_until(
        lambda: service.request("GET", "/v1/status")["active_change"] >= last, "a plan for all"
    )


def _statistics_report(flow: dict[str, Any], p95: float) -> dict[str, Any]:
    return {
        "reporter": flow["subscriber"],
        "subscriber": flow["subscriber"],
        "flow": flow["flow"],
        "configuration_version": flow["version"],
        "window_start": datetime.now(UTC).isoformat(),
        "window_seconds": 1.0,
        "topics": [
            {"topic": name, "delivered_events": 1, "missing_events": 0} for name in flow["filters"]
        ],
        "delay_mean_seconds": p95 / 2,
        "delay_p95_seconds": p95,
    }


@contextmanager
def _send_reports(service: _Service, flows: list[dict[str, Any]]) -> Iterator[None]:
    """Send the reports of every subscriber except the first, once per second, while in use.

    The requests are spread over the second. At most ``SENDERS`` requests are open at a time, so a
    slow service gets late requests, not more of them.
    """
    flows_of: dict[str, list[dict[str, Any]]] = {}
    for flow in flows:
        if flow["subscriber"] != flows[0]["subscriber"]:
            flows_of.setdefault(flow["subscriber"], []).append(flow)
    stop, failures = threading.Event(), []
    shares = [list(flows_of.values())[n::SENDERS] for n in range(SENDERS)]

    def run(subscriber_flows: list[list[dict[str, Any]]], first_seconds: float) -> None:
        due = time.monotonic() + first_seconds
        for turn in count():
            if stop.wait(max(due - time.monotonic(), 0.0)):
                return
            flows_to_report = subscriber_flows[turn % len(subscriber_flows)]
            p95 = 0.01 + turn % 50 / 1e4
            try:
                service.request(
                    "POST",
                    "/v1/statistics",
                    [_statistics_report(flow, p95) for flow in flows_to_report],
                )
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                failures.append(str(error))
                return
            due = max(due + 1.0 / len(subscriber_flows), time.monotonic() - 1.0)

    threads = [
        threading.Thread(
            target=run, args=(subscriber_flows, n / len(flows_of)), name=f"reports-{n}"
        )
        for n, subscriber_flows in enumerate(shares)
        if subscriber_flows
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise RuntimeError(f"the service did not accept a report: {failures[0]}")


def _first_paint(driver: webdriver.Chrome, url: str) -> float:
    driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    driver.get(f"{url}/dashboard/")
    script = "return performance.getEntriesByName('firedex-first-useful-paint')[0]?.startTime ?? 0;"
    _wait_until(lambda: driver.execute_script(script), "the first useful paint")
    return float(driver.execute_script(script)) / 1000


def _update(driver: webdriver.Chrome, service: _Service, flow: dict[str, Any], n: int) -> float:
    """Return the time from sending a report until the page shows it."""
    p95 = 0.5 + n / 100
    start = time.monotonic()
    service.request("POST", "/v1/statistics", [_statistics_report(flow, p95)])
    script = "return document.querySelector(arguments[0])?.textContent.includes(arguments[1]);"
    row = f'#classes tr[data-class="{flow["priority"]}"] td.measured-p95'
    _wait_until(lambda: driver.execute_script(script, row, f"{p95:.2f} s"), "an update")
    return time.monotonic() - start


def _frame_gaps(driver: webdriver.Chrome, url: str) -> list[float]:
    driver.get(f"{url}/dashboard/subscriptions")
    rows = "return document.querySelectorAll('#subscriptions .ag-row').length;"
    _wait_until(lambda: driver.execute_script(rows) > 5, "the table")
    driver.execute_script(FRAMES)
    time.sleep(WATCH_SECONDS)
    gaps: list[float] = driver.execute_script("return window.gaps;")
    return [gap / 1000 for gap in gaps[1:]]
