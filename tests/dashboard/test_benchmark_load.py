"""The load of `firedex bench dashboard` is what it says: each subscriber reports for itself."""

import threading
import time
from collections import Counter
from typing import Any

from firedex import dashboard_benchmark

SECONDS = 1.5


class _Counting:
    """Takes reports, and counts who sent how many requests."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.under_way = self.most = 0
        self.lock = threading.Lock()

    def ask(self, _method: str, _path: str, body: list[dict[str, Any]]) -> None:
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        (reporter,) = {report["reporter"] for report in body}
        assert len(body) == 2, "all of its flows"
        time.sleep(0.05)
        with self.lock:
            self.requests[reporter] += 1
            self.under_way -= 1


def test_every_subscriber_but_the_watched_one_reports_once_a_second() -> None:
    service = _Counting()
    flows = [
        {"subscriber": f"crew-{n}", "flow": flow, "version": 1, "filters": ["floor/1/sensor"]}
        for n in range(dashboard_benchmark.SUBSCRIBERS)
        for flow in range(2)
    ]
    with dashboard_benchmark._reporting(service, flows):  # type: ignore[arg-type]
        time.sleep(SECONDS)
    assert len(service.requests) == dashboard_benchmark.SUBSCRIBERS - 1
    assert "crew-0" not in service.requests
    assert set(service.requests.values()) <= {1, 2, 3}
    assert 1 < service.most <= dashboard_benchmark.SENDERS
