"""Reports of the controller to the service: topology, capabilities and statistics."""

import logging
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, Protocol

from firedex.wire import (
    FlowCounters,
    HostLocation,
    NetworkStatistics,
    NetworkTopology,
    ObservedLink,
    PortCounters,
    QueueCounters,
    SwitchCapabilities,
    SwitchPort,
    SwitchStatistics,
    SwitchStatus,
)
from firedex_controller.agent.messages import BridgeReport
from firedex_controller.errors import ControllerError
from firedex_controller.framework import ofproto, parser
from firedex_controller.reconciler import Reconciler
from firedex_controller.rules import flow_matches
from firedex_controller.settings import SwitchSettings
from firedex_controller.switch_session import SwitchSession
from firedex_controller.switch_state import CLASSIFY, Match, make_match
from firedex_controller.topology import PortRef

__all__ = [
    "BridgeAgent",
    "CounterWindow",
    "StatisticsPoller",
    "observed_topology",
    "switch_capabilities",
]

log = logging.getLogger("firedex.controller")

WINDOW_SECONDS = 10.0
POLL_SECONDS = 5.0
CACHE_SECONDS = 0.5
"""Requests within this time get the same statistics."""

# -- topology --------------------------------------------------------------------------------------


def observed_topology(
    reconciler: Reconciler, switches: Mapping[str, SwitchSettings]
) -> NetworkTopology:
    """Return the switches, links and hosts that are known."""
    topology, ports = reconciler.topology, reconciler.ports

    def name(ref: PortRef) -> str | None:
        port = ports.get(ref.switch, {}).get(ref.number)
        return port.name if port else None

    links = [(near, name(near), far, name(far)) for near, far in sorted(topology.links.items())]
    hosts = [(host, name(host.port)) for host in topology.hosts.values()]
    return NetworkTopology(
        switches=tuple(
            SwitchStatus(
                switch=switch,
                datapath_id=f"{settings.datapath_id:016x}",
                connected=switch in reconciler.sessions,
                settled=reconciler.settled(switch),
                ports=tuple(
                    SwitchPort(number=port.number, name=port.name, up=port.up)
                    for port in ports.get(switch, {}).values()
                ),
                trouble=reconciler.problem(switch),
            )
            for switch, settings in switches.items()
        ),
        links=tuple(
            ObservedLink(from_=near.switch, from_port=near_name, to=far.switch, to_port=far_name)
            for near, near_name, far, far_name in links
            if near_name and far_name
        ),
        hosts=tuple(
            HostLocation(
                hardware_address=host.hardware_address,
                address=host.address,
                switch=host.port.switch,
                port=port,
            )
            for host, port in hosts
            if port
        ),
    )


# -- capabilities ----------------------------------------------------------------------------------


class BridgeAgent(Protocol):
    """The part of a switch agent's client that is used here."""

    def bridges(self) -> Iterable[BridgeReport]:
        """Return the bridges of the switch host."""


def switch_capabilities(
    sessions: Mapping[str, SwitchSession],
    switches: Mapping[str, SwitchSettings],
    agents: Mapping[str, BridgeAgent],
) -> list[SwitchCapabilities]:
    """Return the capabilities of every connected switch whose agent answers.

    A switch that its agent does not know has one class.
    """
    capabilities = []
    for name, session in list(sessions.items()):
        try:
            bridges = agents[name].bridges()
        except ControllerError as error:
            log.warning("the capabilities of switch %s are unknown: %s", name, error)
            continue
        datapath_id = f"{switches[name].datapath_id:016x}"
        bridge = next((each for each in bridges if each.datapath_id == datapath_id), None)
        capabilities.append(
            SwitchCapabilities(
                switch=session.name,
                datapath=bridge.datapath if bridge else "kernel",
                priorities=bridge.priorities if bridge else 1,
                meters=session.has_meters,
                meter_packets_per_second=session.has_packet_meters,
                bundles=session.has_bundles,
            )
        )
    return capabilities


# -- statistics ------------------------------------------------------------------------------------

Counters = Mapping[Hashable, tuple[int, ...]]


class CounterWindow:
    """Compute rates from the counters of the last ``seconds``.

    A counter that is lower than before was reset; it counts from 0 again.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, Counters]] = deque()

    def add(self, now: float, counters: Counters) -> None:
        """Add a sample of all counters."""
        self._samples.append((now, counters))
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._seconds:
            self._samples.popleft()

    @property
    def span_seconds(self) -> float:
        """The time between the first sample of the window and the last."""
        return self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0

    def rates(self, key: Hashable) -> tuple[float, ...]:
        """Return the rates per second of the counters under ``key``."""
        last = self._samples[-1][1][key]
        first = self._samples[0][1].get(key, (0,) * len(last))
        if self.span_seconds <= 0:
            return (0.0,) * len(last)
        return tuple(
            (now - then if now >= then else now) / self.span_seconds
            for now, then in zip(last, first, strict=True)
        )


class StatisticsPoller:
    """Read the counters of switches periodically, and when they are requested."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._windows: dict[str, CounterWindow] = {}
        self._last: tuple[float, NetworkStatistics] | None = None
        self._lock = threading.Lock()

    def run(self) -> None:
        """Poll periodically, so that a window has a first sample; never returns."""
        pause = threading.Event()
        while not pause.wait(POLL_SECONDS):
            self.poll()

    def poll(self) -> NetworkStatistics:
        """Return all counters, with rates over the window."""
        with self._lock:
            if self._last is not None and monotonic() - self._last[0] < CACHE_SECONDS:
                return self._last[1]
            switches = []
            for name, session in list(self._reconciler.sessions.items()):
                try:
                    switches.append(self._switch_statistics(name, session))
                except ControllerError as error:
                    log.warning("cannot read the statistics of switch %s: %s", name, error)
            statistics = NetworkStatistics(switches=tuple(switches))
            self._last = (monotonic(), statistics)
            return statistics

    def _switch_statistics(self, name: str, session: SwitchSession) -> SwitchStatistics:
        flows = self._flow_counts(name, session)
        names = {port.number: port.name for port in self._reconciler.ports.get(name, {}).values()}
        ports = {
            names[stat.port_no]: stat
            for stat in _request(session, parser.OFPPortStatsRequest(session.datapath))
            if stat.port_no in names
        }
        queues = {(q.port, q.priority): q for q in self._queue_counters(name)}
        window = self._windows.setdefault(name, CounterWindow(WINDOW_SECONDS))
        counters: dict[Any, tuple[int, ...]] = {}
        counters |= {("flow", key): counts[:2] for key, counts in flows.items()}
        counters |= {("queue", key): (q.packets, q.bytes) for key, q in queues.items()}
        counters |= {("port", port): (s.tx_bytes, s.rx_bytes) for port, s in ports.items()}
        window.add(monotonic(), counters)
        return SwitchStatistics(
            switch=name,
            window_seconds=max(window.span_seconds, 1e-3),
            flows=tuple(_flow(key, counts, window) for key, counts in flows.items()),
            queues=tuple(_queue(key, queue, window) for key, queue in queues.items()),
            ports=tuple(_port(port, stat, window) for port, stat in ports.items()),
        )

    def _queue_counters(self, name: str) -> list[QueueCounters]:
        try:
            return list(self._reconciler.queues(name).counters())
        except ControllerError as error:
            log.warning("cannot read the queue statistics of switch %s: %s", name, error)
            return []

    def _flow_counts(
        self, name: str, session: SwitchSession
    ) -> Mapping[tuple[str, int], tuple[int, int, int]]:
        """Return packets, bytes and packets dropped by the meter, by subscriber and flow."""
        owners = _flow_owners(self._reconciler, name)
        dropped = _meter_drops(session)
        counts: dict[tuple[str, int], tuple[int, int, int]] = {}
        request = parser.OFPFlowStatsRequest(session.datapath, table_id=CLASSIFY)
        for stat in _request(session, request):
            owner = owners.get(make_match(**dict(stat.match.items())))
            if owner is None:
                continue
            packets, size, dropped_by_meter = counts.get(owner, (0, 0, 0))
            meters = [i.meter_id for i in stat.instructions if hasattr(i, "meter_id")]
            dropped_by_meter = max(
                dropped_by_meter, *(dropped.get(meter, 0) for meter in meters), 0
            )
            counts[owner] = packets + stat.packet_count, size + stat.byte_count, dropped_by_meter
        return counts


def _flow_owners(reconciler: Reconciler, switch: str) -> dict[Match, tuple[str, int]]:
    network = reconciler.desired
    return {
        match: (rule.subscriber, rule.flow)
        for part in (network.switches if network else ())
        if part.switch == switch
        for rule in part.flows
        for match in flow_matches(rule)
    }


def _meter_drops(session: SwitchSession) -> dict[int, int]:
    """Return the number of packets that each meter has dropped."""
    if not session.has_meters:
        return {}
    stats = _request(session, parser.OFPMeterStatsRequest(session.datapath, 0, ofproto.OFPM_ALL))
    return {
        stat.meter_id: sum(band.packet_band_count for band in stat.band_stats) for stat in stats
    }


def _request(session: SwitchSession, message: Any) -> Iterable[Any]:
    return [each for reply in session.channel.request(message) for each in reply.body]


def _flow(
    key: tuple[str, int], counts: tuple[int, int, int], window: CounterWindow
) -> FlowCounters:
    packet_rate, byte_rate = window.rates(("flow", key))
    return FlowCounters(
        subscriber=key[0],
        flow=key[1],
        packets=counts[0],
        bytes=counts[1],
        metered_out_packets=counts[2],
        packets_per_second=packet_rate,
        bits_per_second=8 * byte_rate,
    )


def _queue(key: tuple[str, int], queue: QueueCounters, window: CounterWindow) -> QueueCounters:
    packet_rate, byte_rate = window.rates(("queue", key))
    return replace(queue, packets_per_second=packet_rate, bits_per_second=8 * byte_rate)


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
