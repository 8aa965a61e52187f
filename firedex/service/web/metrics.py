"""Prometheus metrics of requests, and of the state when metrics are scraped."""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from firedex.service.core import ConfigurationService
from firedex.service.insight.views import delay_ratios, deviations
from firedex.service.state.offered_rates import confidence
from firedex.service.state.report_store import ReportStore

__all__ = ["ServiceMetrics"]

RECENT_SECONDS = 600.0
MAX_TOPICS = 200


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
            "Duration of requests, without the time they wait for activation.",
            ("endpoint",),
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
            registry=self._registry,
        )
        self._registry.register(_StateCollector(service))

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry).decode()


class _StateCollector:
    """Reads the state of the service when it is scraped."""

    def __init__(self, service: ConfigurationService) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        status = self._service.status()
        gauges = {
            "publishers": (status.publishers, "Registered publishers."),
            "subscribers": (status.subscribers, "Registered subscribers."),
            "subscriptions": (status.subscriptions, "Subscriptions of all subscribers."),
            "event_streams": (status.event_streams, "Open event streams."),
            "last_change": (status.last_change, "Number of the last change."),
            "pending_changes": (status.pending_changes, "Changes that are not active yet."),
            "configuration_version": (
                status.active_version,
                "Version of the active configuration.",
            ),
            "deadlines_missed": (
                status.deadlines_missed,
                "Subscriptions that are predicted to miss their deadline.",
            ),
            "push_attempts_failed": (
                status.trouble.attempts if status.trouble else 0,
                "Failed attempts to apply the configuration to the network.",
            ),
            "ready": (
                0 if self._service.reasons_not_ready() else 1,
                "1 if plans are made and applied to the network, otherwise 0.",
            ),
        }
        if status.achieved_utility_rate is not None:
            gauges["achieved_utility_rate"] = (
                status.achieved_utility_rate,  # type: ignore[assignment]
                "Predicted utility divided by the maximum utility.",
            )
        for name, (number, description) in gauges.items():
            yield GaugeMetricFamily(f"firedex_{name}", description, value=float(number))
        yield from self._rates()
        yield self._deviation()

    def _rates(self) -> Iterator[Metric]:
        measured = self._service.reader().measured()
        rates = GaugeMetricFamily(
            "firedex_topic_offered_rate",
            "Events per second offered to a topic, before drops.",
            labels=("topic",),
        )
        confidences = GaugeMetricFamily(
            "firedex_topic_offered_rate_confidence",
            "Confidence in the measured rate of a topic, from 0 to 1.",
            labels=("topic",),
        )
        for topic, known in list(measured.items())[:MAX_TOPICS]:
            rates.add_metric((topic,), known.rate_per_second)
            confidences.add_metric((topic,), confidence(known))
        yield rates
        yield confidences

    def _deviation(self) -> Metric:
        active = self._service.active
        reports = ReportStore(self._service.database).latest_of_clients(
            time.time() - RECENT_SECONDS
        )
        found = delay_ratios(
            deviations(active.document if active else None, self._service.version, reports)
        )
        family = GaugeMetricFamily(
            "firedex_delay_measured_over_predicted",
            "Mean delay reported by clients divided by the predicted one; quantiles over flows.",
            labels=("quantile",),
        )
        for quantile in (0.05, 0.5, 0.95):
            if found:
                ratio = found[min(int(quantile * len(found)), len(found) - 1)]
                family.add_metric((str(quantile),), ratio)
        return family
