"""Prometheus metrics: counted as requests go by, and read from the state when scraped."""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from firedex.service.core import ConfigurationService
from firedex.service.deviations import deviations, ratios
from firedex.service.offered_rates import confidence
from firedex.service.report_store import ReportStore

__all__ = ["ServiceMetrics"]

RECENT_SECONDS = 600.0
MOST_TOPICS = 200


class ServiceMetrics:
    """The metrics of one service."""

    def __init__(self, service: ConfigurationService) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "firedex_requests",
            "Requests, by endpoint and status.",
            ("endpoint", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "firedex_request_seconds",
            "How long requests took, without waiting for the network.",
            ("endpoint",),
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
            registry=self._registry,
        )
        self._registry.register(_StateCollector(service))

    def text(self) -> str:
        """All of them, in Prometheus's format."""
        return generate_latest(self._registry).decode()


class _StateCollector:
    """Reads the service when it is scraped."""

    def __init__(self, service: ConfigurationService) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        status = self._service.status()
        figures = {
            "publishers": (status.publishers, "Registered publishers."),
            "subscribers": (status.subscribers, "Registered subscribers."),
            "subscriptions": (status.subscriptions, "Subscriptions of all subscribers."),
            "event_streams": (status.event_streams, "Open event streams."),
            "last_change": (status.last_change, "The number of the last change."),
            "pending_changes": (status.pending_changes, "Changes that are not in force yet."),
            "configuration_version": (status.in_force_version, "The version in force."),
            "deadlines_missed": (status.deadlines_missed, "Predicted to miss their deadline."),
            "push_attempts_failed": (
                status.trouble.attempts if status.trouble else 0,
                "Attempts since the network last followed.",
            ),
            "ready": (0 if self._service.not_ready() else 1, "Whether the network follows."),
        }
        if status.achieved_utility_rate is not None:
            figures["achieved_utility_rate"] = (
                status.achieved_utility_rate,  # type: ignore[assignment]
                "Utility predicted over the most there could be.",
            )
        for name, (figure, about) in figures.items():
            yield GaugeMetricFamily(f"firedex_{name}", about, value=float(figure))
        yield from self._rates()
        yield self._deviation()

    def _rates(self) -> Iterator[Metric]:
        measured = self._service.reader().measured()
        rates = GaugeMetricFamily(
            "firedex_topic_offered_rate", "Events a second, before drops.", labels=("topic",)
        )
        sure = GaugeMetricFamily(
            "firedex_topic_offered_rate_confidence", "From 0 to 1.", labels=("topic",)
        )
        for topic, known in list(measured.items())[:MOST_TOPICS]:
            rates.add_metric((topic,), known.rate_per_second)
            sure.add_metric((topic,), confidence(known))
        yield rates
        yield sure

    def _deviation(self) -> Metric:
        now = self._service.in_force
        reports = ReportStore(self._service.database).latest_of_clients(
            time.time() - RECENT_SECONDS
        )
        found = ratios(deviations(now.document if now else None, self._service.version, reports))
        family = GaugeMetricFamily(
            "firedex_delay_measured_over_predicted",
            "Mean delays reported by clients over predicted ones, over flows.",
            labels=("quantile",),
        )
        for quantile in (0.05, 0.5, 0.95):
            if found:
                figure = found[min(int(quantile * len(found)), len(found) - 1)]
                family.add_metric((str(quantile),), figure)
        return family
