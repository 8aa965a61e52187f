"""What the gateway tells of its counts: statistics for the service, metrics for Prometheus."""

from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from firedex.gateway.event_counts import TopicTally, Totals
from firedex.gateway.flow_table import FlowTable
from firedex.wire import Statistics, TopicCount
from firedex.wire.mqtt_names import check_topic

__all__ = ["GatewayMetrics", "flow_statistics"]


def flow_statistics(
    flows: FlowTable, reporter: str, since: datetime, now: datetime
) -> Iterator[Statistics]:
    """Every flow's counts since the last time; counting begins anew."""
    seconds = (now - since).total_seconds()
    for flow in flows.flows():
        topics = tuple(_topic_counts(flow.counts.take_window()))
        if topics and seconds > 0:
            yield Statistics(
                reporter=reporter,
                subscriber=flow.subscriber,
                flow=flow.number,
                configuration_version=flows.version,
                window_start=since,
                window_seconds=seconds,
                topics=topics,
            )


def _topic_counts(tallies: dict[bytes, TopicTally]) -> Iterator[TopicCount]:
    for name, tally in sorted(tallies.items()):
        try:
            topic = check_topic(name.decode())
        except ValueError:
            continue  # no topic that anybody could plan for
        yield TopicCount(
            topic=topic,
            offered_events=tally.offered,
            delivered_events=tally.delivered,
            payload_bytes=tally.payload_bytes,
        )


class GatewayMetrics(Collector):
    """Counters by flow and transport, as Prometheus asks for them."""

    def __init__(self, flows: FlowTable, gauges: Callable[[], dict[str, dict[str, float]]]) -> None:
        self._flows, self._gauges = flows, gauges
        self.unmanaged: dict[str, Totals] = {}

    def collect(self) -> Iterator[Metric]:
        """The metrics of now."""
        names = {
            "offered": "Events at QoS 0 that came from the broker.",
            "delivered": "Those that went to the subscriber.",
            "dropped": "Those that a drop rate took.",
            "shed": "Those that gave way because the flow's buffer was full or they were too old.",
            "refused": "Those that the subscriber cannot take: too large.",
        }
        rows = self._rows()
        for name, text in names.items():
            family = CounterMetricFamily(
                f"firedex_gateway_{name}_events", text, labels=["subscriber", "flow"]
            )
            for labels, totals in rows:
                family.add_metric(labels, getattr(totals, name))
            yield family
        rates = GaugeMetricFamily(
            "firedex_gateway_drop_rate", "Ω of a flow.", labels=["subscriber", "flow"]
        )
        for flow in self._flows.flows():
            rates.add_metric([flow.subscriber, str(flow.number)], flow.drop_rate)
        yield rates
        version = GaugeMetricFamily(
            "firedex_gateway_configuration_version", "The configuration that is followed."
        )
        version.add_metric([], self._flows.version)
        yield version
        for name, by_transport in self._gauges().items():
            gauge = GaugeMetricFamily(
                f"firedex_gateway_{name}", name.replace("_", " "), labels=["transport"]
            )
            for transport, number in by_transport.items():
                gauge.add_metric([transport], number)
            yield gauge

    def _rows(self) -> list[tuple[list[str], Totals]]:
        rows = [
            ([flow.subscriber, str(flow.number)], flow.counts.totals)
            for flow in self._flows.flows()
        ]
        rows.append((["", "retired"], self._flows.retired))
        for transport, totals in self.unmanaged.items():
            rows.append((["", f"unmanaged-{transport}"], totals))
        return rows
