"""Reports of the gateway: statistics and heartbeats to the service, metrics to Prometheus."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from firedex.gateway.flow_table import EventTotals, FlowTable, TopicCounts
from firedex.transport.service_client import ServiceClient
from firedex.transport.service_follower import REPORT_SECONDS, ServiceFollower
from firedex.wire import Configuration, Statistics, TopicCount
from firedex.wire.mqtt_names import check_topic

__all__ = ["GatewayMetrics", "flow_statistics", "service_follower"]

log = logging.getLogger("firedex.gateway")
NAME = "gateway"
POLL_SECONDS = 0.25
BROKER_SECONDS = 2.0


# -- the service -----------------------------------------------------------------------------------


def service_follower(
    service: ServiceClient,
    flows: FlowTable,
    *,
    broker: tuple[str, int],
    report_seconds: float = REPORT_SECONDS,
) -> ServiceFollower:
    """Return a follower that applies configurations to ``flows`` and reports event counts.

    While the broker accepts connections, the follower also sends a heartbeat on its behalf, because
    the broker does not know the service.
    """
    window_start = datetime.now(UTC)

    def apply(configuration: Configuration) -> None:
        if configuration.version != flows.version:
            log.info("configuration %d is active", configuration.version)
        flows.apply(configuration)

    async def report() -> None:
        nonlocal window_start
        now = datetime.now(UTC)
        statistics = list(flow_statistics(flows, NAME, window_start, now))
        window_start = now
        await service.post_heartbeat(follower.heartbeat(NAME, "gateway"))
        if await _accepts_connections(*broker):
            await service.post_heartbeat(follower.heartbeat("broker", "broker"))
        if statistics:
            await service.post_statistics(statistics)

    follower = ServiceFollower(
        service,
        name=NAME,
        on_configuration=apply,
        report=report,
        report_seconds=report_seconds,
        poll_seconds=POLL_SECONDS,
        logger=log,
    )
    return follower


async def _accepts_connections(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(BROKER_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def flow_statistics(
    flows: FlowTable, reporter: str, window_start: datetime, now: datetime
) -> Iterator[Statistics]:
    """Yield the counts of each flow since ``window_start``, and start the next window."""
    seconds = (now - window_start).total_seconds()
    for flow in flows.flows():
        topics = tuple(_topic_counts(flow.counts.take_counts()))
        if topics and seconds > 0:
            yield Statistics(
                reporter=reporter,
                subscriber=flow.subscriber,
                flow=flow.number,
                configuration_version=flows.version,
                window_start=window_start,
                window_seconds=seconds,
                topics=topics,
            )


def _topic_counts(by_topic: dict[bytes, TopicCounts]) -> Iterator[TopicCount]:
    for name, counts in sorted(by_topic.items()):
        try:
            topic = check_topic(name.decode())
        except ValueError:
            continue  # the service accepts valid topic names only
        yield TopicCount(
            topic=topic,
            offered_events=counts.offered,
            delivered_events=counts.delivered,
            payload_bytes=counts.payload_bytes,
        )


# -- Prometheus ------------------------------------------------------------------------------------

_COUNTERS = {
    "offered": "QoS 0 events received from the broker.",
    "delivered": "QoS 0 events sent to the subscriber.",
    "dropped": "QoS 0 events dropped because of the drop rate.",
    "shed": "QoS 0 events discarded because the buffer was full or they waited too long.",
    "refused": "QoS 0 events that exceed the maximum packet size of the subscriber.",
}
_GAUGES = {
    "connections": "Open connections of clients.",
    "refused_connections": "Connections and datagrams that were refused.",
}


class GatewayMetrics(Collector):
    """Collect event counts by flow, and connections by transport."""

    def __init__(
        self,
        flows: FlowTable,
        unmanaged: dict[str, EventTotals],
        gauges: Callable[[], dict[str, dict[str, float]]],
    ) -> None:
        self._flows, self._unmanaged, self._gauges = flows, unmanaged, gauges

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        rows = self._rows()
        for name, text in _COUNTERS.items():
            family = CounterMetricFamily(
                f"firedex_gateway_{name}_events", text, labels=["subscriber", "flow"]
            )
            for labels, totals in rows:
                family.add_metric(labels, getattr(totals, name))
            yield family
        rates = GaugeMetricFamily(
            "firedex_gateway_drop_rate",
            "Drop rate of a flow that the gateway enforces.",
            labels=["subscriber", "flow"],
        )
        for flow in self._flows.flows():
            rates.add_metric([flow.subscriber, str(flow.number)], flow.drop_rate)
        yield rates
        version = GaugeMetricFamily(
            "firedex_gateway_configuration_version", "Version of the active configuration."
        )
        version.add_metric([], self._flows.version)
        yield version
        for name, by_transport in self._gauges().items():
            gauge = GaugeMetricFamily(
                f"firedex_gateway_{name}", _GAUGES[name], labels=["transport"]
            )
            for transport, number in by_transport.items():
                gauge.add_metric([transport], number)
            yield gauge

    def _rows(self) -> list[tuple[list[str], EventTotals]]:
        rows = [
            ([flow.subscriber, str(flow.number)], flow.counts.totals)
            for flow in self._flows.flows()
        ]
        rows.append((["", "retired"], self._flows.retired))
        for transport, totals in self._unmanaged.items():
            rows.append((["", f"unmanaged-{transport}"], totals))
        return rows
