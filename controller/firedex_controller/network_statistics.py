"""Asking switches for their counters, and telling them in the service's words."""

import logging
import threading
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any

from firedex.wire import (
    FlowCounters,
    NetworkStatistics,
    PortCounters,
    QueueCounters,
    SwitchStatistics,
)
from firedex_controller.classification import flow_matches
from firedex_controller.errors import ControllerError
from firedex_controller.framework import ofproto, parser
from firedex_controller.reconciler import Reconciler
from firedex_controller.statistics_window import CounterWindow
from firedex_controller.switch_entries import CLASSIFY, Match, match_of
from firedex_controller.switch_session import SwitchSession

__all__ = ["StatisticsPoll"]

log = logging.getLogger("firedex.controller")

WINDOW_SECONDS = 10.0
POLL_SECONDS = 5.0
FRESH_SECONDS = 0.5
"""Who asks more often than this is told the same again."""


class StatisticsPoll:
    """Looks at the counters now and then, and whenever somebody asks."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._windows: dict[str, CounterWindow] = {}
        self._last: tuple[float, NetworkStatistics] | None = None
        self._lock = threading.Lock()

    def run(self) -> None:
        """Look every few seconds, so that a rate has something to begin at."""
        pause = threading.Event()
        while not pause.wait(POLL_SECONDS):
            self.look()

    def look(self) -> NetworkStatistics:
        """All counters now, with rates since the beginning of the window."""
        with self._lock:
            if self._last is not None and monotonic() - self._last[0] < FRESH_SECONDS:
                return self._last[1]
            switches = []
            for name, session in list(self._reconciler.sessions.items()):
                try:
                    switches.append(self._of_switch(name, session))
                except ControllerError as error:
                    log.warning("no statistics of %s: %s", name, error)
            seen = NetworkStatistics(switches=tuple(switches))
            self._last = (monotonic(), seen)
            return seen

    def _of_switch(self, name: str, session: SwitchSession) -> SwitchStatistics:
        flows = self._flows(name, session)
        names = {port.number: port.name for port in self._reconciler.ports.get(name, {}).values()}
        ports = {
            names[stat.port_no]: stat
            for stat in _ask(session, parser.OFPPortStatsRequest(session.datapath))
            if stat.port_no in names
        }
        queues = {(q.port, q.priority): q for q in self._queues(name)}
        window = self._windows.setdefault(name, CounterWindow(WINDOW_SECONDS))
        counters: dict[Any, tuple[int, ...]] = {}
        counters |= {("flow", key): counted[:2] for key, counted in flows.items()}
        counters |= {("queue", key): (q.packets, q.bytes) for key, q in queues.items()}
        counters |= {("port", port): (s.tx_bytes, s.rx_bytes) for port, s in ports.items()}
        window.add(monotonic(), counters)
        return SwitchStatistics(
            switch=name,
            window_seconds=max(window.span_seconds, 1e-3),
            flows=tuple(_flow(key, counted, window) for key, counted in flows.items()),
            queues=tuple(_queue(key, queue, window) for key, queue in queues.items()),
            ports=tuple(_port(port, stat, window) for port, stat in ports.items()),
        )

    def _queues(self, name: str) -> list[QueueCounters]:
        try:
            return list(self._reconciler.shaping(name).counters())
        except ControllerError as error:
            log.warning("no queue statistics of %s: %s", name, error)
            return []

    def _flows(
        self, name: str, session: SwitchSession
    ) -> Mapping[tuple[str, int], tuple[int, int, int]]:
        """Packets, bytes and what the meter took, by subscriber and flow."""
        owners = _owners(self._reconciler, name)
        asked = parser.OFPFlowStatsRequest(session.datapath, table_id=CLASSIFY)
        refused = _refused_by_meters(session)
        counted: dict[tuple[str, int], tuple[int, int, int]] = {}
        for stat in _ask(session, asked):
            owner = owners.get(match_of(**dict(stat.match.items())))
            if owner is None:
                continue
            packets, size, taken = counted.get(owner, (0, 0, 0))
            meters = [i.meter_id for i in stat.instructions if hasattr(i, "meter_id")]
            taken = max(taken, *(refused.get(meter, 0) for meter in meters), 0)
            counted[owner] = packets + stat.packet_count, size + stat.byte_count, taken
        return counted


def _owners(reconciler: Reconciler, switch: str) -> dict[Match, tuple[str, int]]:
    network = reconciler.desired
    return {
        match: (rule.subscriber, rule.flow)
        for part in (network.switches if network else ())
        if part.switch == switch
        for rule in part.flows
        for match in flow_matches(rule)
    }


def _refused_by_meters(session: SwitchSession) -> dict[int, int]:
    """What each meter has dropped."""
    if not session.has_meters:
        return {}
    stats = _ask(session, parser.OFPMeterStatsRequest(session.datapath, 0, ofproto.OFPM_ALL))
    return {
        stat.meter_id: sum(band.packet_band_count for band in stat.band_stats) for stat in stats
    }


def _ask(session: SwitchSession, message: Any) -> Iterable[Any]:
    return [each for answer in session.conversation.ask(message) for each in answer.body]


def _flow(
    key: tuple[str, int], counted: tuple[int, int, int], window: CounterWindow
) -> FlowCounters:
    packet_rate, byte_rate = window.rates(("flow", key))
    return FlowCounters(
        subscriber=key[0],
        flow=key[1],
        packets=counted[0],
        bytes=counted[1],
        metered_out_packets=counted[2],
        packets_per_second=packet_rate,
        bits_per_second=8 * byte_rate,
    )


def _queue(key: tuple[str, int], queue: QueueCounters, window: CounterWindow) -> QueueCounters:
    packet_rate, byte_rate = window.rates(("queue", key))
    return QueueCounters(
        port=queue.port,
        priority=queue.priority,
        packets=queue.packets,
        bytes=queue.bytes,
        dropped_packets=queue.dropped_packets,
        backlog_packets=queue.backlog_packets,
        packets_per_second=packet_rate,
        bits_per_second=8 * byte_rate,
    )


def _port(name: str, stat: Any, window: CounterWindow) -> PortCounters:
    sent_rate, received_rate = window.rates(("port", name))
    return PortCounters(
        port=name,
        sent_packets=stat.tx_packets,
        sent_bytes=stat.tx_bytes,
        received_packets=stat.rx_packets,
        received_bytes=stat.rx_bytes,
        dropped_packets=stat.tx_dropped + stat.rx_dropped,
        sent_bits_per_second=8 * sent_rate,
        received_bits_per_second=8 * received_rate,
    )
