"""The load of `firedex bench dashboard`: each subscriber sends its own reports."""

import threading
import time
from collections import Counter
from typing import Any

from tests.benchmarks import dashboard as dashboard_benchmark
from tests.support.waiting import wait_until


class _ReportCounter:
    """Counts the requests of each reporter."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.open_requests = self.most_open_requests = 0
        self.lock = threading.Lock()

    def complete_rounds(self) -> int:
        """Return the number of reports that every subscriber has sent."""
        with self.lock:
            all_reported = len(self.requests) == dashboard_benchmark.SUBSCRIBERS - 1
            return min(self.requests.values()) if all_reported else 0

    def request(self, _method: str, _path: str, body: list[dict[str, Any]]) -> None:
        with self.lock:
            self.open_requests += 1
            self.most_open_requests = max(self.most_open_requests, self.open_requests)
        (reporter,) = {report["reporter"] for report in body}
        assert len(body) == 2, "one report for each flow"
        time.sleep(0.05)
        with self.lock:
            self.requests[reporter] += 1
            self.open_requests -= 1


def test_every_subscriber_but_the_watched_one_reports_once_a_second() -> None:
    service = _ReportCounter()
    flows = [
        {"subscriber": f"crew-{n}", "flow": flow, "version": 1, "filters": ["floor/1/sensor"]}
        for n in range(dashboard_benchmark.SUBSCRIBERS)
        for flow in range(2)
    ]
    with dashboard_benchmark._send_reports(service, flows):  # type: ignore[arg-type]
        wait_until(lambda: service.complete_rounds() >= 2, "two reports of each subscriber")
    assert "crew-0" not in service.requests
    assert max(service.requests.values()) <= service.complete_rounds() + 2, "subscribers take turns"
    assert service.most_open_requests <= dashboard_benchmark.SENDERS
