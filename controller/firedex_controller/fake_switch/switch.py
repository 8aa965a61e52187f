"""A fake switch: ports and a control channel around the OpenFlow agent, and packets through it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from firedex_controller.fake_switch import replies
from firedex_controller.fake_switch.control_channel import ControlChannel
from firedex_controller.fake_switch.flow_entries import FakeFlow
from firedex_controller.fake_switch.frames import changed_frame, fields_of, packet_fields
from firedex_controller.fake_switch.meter_table import FakeMeter
from firedex_controller.fake_switch.openflow_agent import OpenFlowAgent
from firedex_controller.fake_switch.pipeline import (
    NO_COOKIE,
    Emission,
    Passage,
    run_actions,
    run_tables,
)
from firedex_controller.fake_switch.received_messages import Received, order_of
from firedex_controller.fake_switch.requests import PacketOut
from firedex_controller.fake_switch.statistics_replies import PortTraffic
from firedex_controller.framework import ofproto

if TYPE_CHECKING:
    from firedex_controller.fake_switch.network import FakeNetwork, Journey

__all__ = ["FakeSwitch", "Trace"]

BROADCAST_BIT = 1 << 40


@dataclass(frozen=True, slots=True)
class Trace:
    """What a switch would do with a packet. ``output_ports`` are real ports, flooding spelt out."""

    dscp: int | None
    queue: int | None
    meters: tuple[int, ...]
    output_ports: tuple[int, ...]
    packet_in: bool
    flows: tuple[FakeFlow, ...]


class FakeSwitch:
    """One switch of a ``FakeNetwork``, which makes it."""

    def __init__(
        self, network: FakeNetwork, name: str, datapath_id: int, port_names: Sequence[str]
    ) -> None:
        self.network, self.name, self.datapath_id = network, name, datapath_id
        self._lock = network.lock
        numbers = range(1, len(port_names) + 1)
        self.port_names = dict(zip(numbers, port_names, strict=True))
        self._down: set[int] = set()
        self._traffic = {number: PortTraffic(number, monotonic()) for number in numbers}
        self._learnt: dict[int, int] = {}
        self.packet_ins_sent = 0
        self.agent = OpenFlowAgent(datapath_id, self, self._packet_out)
        self._channel = ControlChannel(
            network.controller, greet=self._greet, digest=self._digest, lost=self._channel_lost
        )

    # -- what tests ask ------------------------------------------------------------------------

    def flows(self) -> frozenset[FakeFlow]:
        """All flows, comparable with those of another switch or another time."""
        with self._lock:
            return frozenset(stored.flow for stored in self.agent.flows)

    def meters(self) -> frozenset[FakeMeter]:
        """All meters, likewise."""
        with self._lock:
            return frozenset(stored.meter for stored in self.agent.meters.stored.values())

    def packets_of(self, flow: FakeFlow) -> int:
        """How many packets a flow has seen."""
        with self._lock:
            return next(s.counters.packets for s in self.agent.flows if s.flow == flow)

    def received(self) -> list[Received]:
        """Every message from the controller, in order."""
        with self._lock:
            return list(self.agent.received)

    def order(self) -> list[str]:
        """The kinds of messages in order, each run of one kind once."""
        return order_of(self.received())

    def forget_received(self) -> None:
        """Begin the record anew."""
        with self._lock:
            self.agent.received.clear()

    def limit(
        self,
        *,
        max_flows: int | None = None,
        max_meters: int | None = None,
        bundles: bool | None = None,
    ) -> None:
        """Make the switch a smaller one: flows of each table, meters, no bundles."""
        with self._lock:
            if max_flows is not None:
                self.agent.flows.max_flows = max_flows
            if max_meters is not None:
                self.agent.meters.max_meters = max_meters
            if bundles is not None:
                self.agent.bundles_supported = bundles

    # -- the control channel -------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the controller, and again whenever the channel is lost."""
        self._channel.start()

    def disconnect(self) -> None:
        """Lose the control channel and stay away; flows and meters stay."""
        self._channel.disconnect()

    def reconnect(self) -> None:
        """Come back."""
        self._channel.reconnect()

    def restart(self) -> None:
        """Lose everything, the channel included, and come back."""
        self._channel.disconnect()
        with self._lock:
            self.agent.forget()
            self._learnt.clear()
        self._channel.reconnect()

    def close(self) -> None:
        """End it."""
        self._channel.close()

    @property
    def connected(self) -> threading.Event:
        """Set while there is a control channel."""
        return self._channel.connected

    def _greet(self) -> None:
        self._channel.send(replies.hello_message())

    def _digest(self, message: bytes) -> None:
        with self._lock:
            for said in self.agent.digest(message):
                self._channel.send(said)

    def _channel_lost(self) -> None:
        with self._lock:
            self.agent.channel_lost()

    # -- ports ---------------------------------------------------------------------------------

    def port_number(self, port: int | str) -> int:
        """A port's number, by its name or itself."""
        if isinstance(port, int):
            return port
        return next(number for number, name in self.port_names.items() if name == port)

    def port_descriptions(self) -> list[replies.PortDescription]:
        """All ports as the controller is told of them."""
        return [self._described(number) for number in self.port_names]

    def _described(self, number: int) -> replies.PortDescription:
        mac = (0x02 << 40 | (self.datapath_id & 0xFFFFFF) << 16 | number).to_bytes(6, "big")
        up = number not in self._down
        return replies.PortDescription(number, self.port_names[number], mac, up)

    def port_traffic(self) -> list[PortTraffic]:
        """All ports' counters."""
        return list(self._traffic.values())

    def set_port_up(self, port: int | str, *, up: bool, tell: bool = True) -> None:
        """Change a port's state; the controller is told, unless it shall not be."""
        number = self.port_number(port)
        with self._lock:
            (self._down.discard if up else self._down.add)(number)
            if tell:
                self._channel.send(replies.port_status_message(self._described(number)))

    # -- packets -------------------------------------------------------------------------------

    def trace(self, in_port: int | str, **fields: Any) -> Trace:
        """What would be done with a packet; nothing is counted, sent or learnt."""
        number = self.port_number(in_port)
        with self._lock:
            imagined = {**packet_fields(**fields), "in_port": number}
            passage = run_tables(imagined, self.agent.flows)
            ports = [
                port
                for emission in passage.emissions
                for port in self._real_ports(emission.port, number, passage.fields)
            ]
            to_controller = (e.port == ofproto.OFPP_CONTROLLER for e in passage.emissions)
            return Trace(
                dscp=passage.fields.get("ip_dscp"),
                queue=passage.queue,
                meters=tuple(passage.meters),
                output_ports=tuple(ports),
                packet_in=any(to_controller),
                flows=tuple(stored.flow for stored in passage.matched),
            )

    def inject(self, in_port: int | str, frame: bytes) -> Journey:
        """Let a frame arrive at a port; follow it through the network."""
        return self.network.carry(self, self.port_number(in_port), frame)

    def arrive(self, in_port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """A frame has arrived: count it, tell the controller if asked to; return what goes out."""
        self._traffic[in_port].received_packets += 1
        self._traffic[in_port].received_octets += len(frame)
        fields = {**fields_of(frame), "in_port": in_port}
        if not fields.get("eth_src", BROADCAST_BIT) & BROADCAST_BIT:
            self._learnt[fields["eth_src"]] = in_port
        return self._through_tables(in_port, fields, frame)

    def _through_tables(
        self, in_port: int, fields: dict[str, int], frame: bytes, *, arrived: bool = True
    ) -> list[tuple[int, bytes]]:
        passage = run_tables(fields, self.agent.flows)
        for stored in passage.matched:
            stored.counters.packets += 1
            stored.counters.octets += len(frame)
        for meter in passage.meters:
            self.agent.meters.count(meter, len(frame))
        return self._emit(passage, in_port, frame, arrived=arrived)

    def _emit(
        self, passage: Passage, in_port: int, frame: bytes, *, arrived: bool
    ) -> list[tuple[int, bytes]]:
        sent = []
        for emission in passage.emissions:
            changed = changed_frame(frame, dict(emission.changes))
            if emission.port == ofproto.OFPP_CONTROLLER:
                miss = arrived and emission.of_table_miss
                reason = ofproto.OFPR_NO_MATCH if miss else ofproto.OFPR_ACTION
                self._packet_in(emission, in_port, changed, reason)
            elif emission.port == ofproto.OFPP_TABLE:
                fields = {**fields_of(changed), "in_port": in_port}
                sent += self._through_tables(in_port, fields, changed, arrived=arrived)
            for port in self._real_ports(emission.port, in_port, passage.fields):
                self._traffic[port].sent_packets += 1
                self._traffic[port].sent_octets += len(changed)
                sent.append((port, changed))
        return sent

    def _real_ports(self, port: int, in_port: int, fields: dict[str, int]) -> list[int]:
        usable = [number for number in self.port_names if number not in self._down]
        if port == ofproto.OFPP_IN_PORT:
            return [in_port] if in_port in usable else []
        if port == ofproto.OFPP_NORMAL and fields.get("eth_dst") in self._learnt:
            port = self._learnt[fields["eth_dst"]]
        elif port in (ofproto.OFPP_FLOOD, ofproto.OFPP_ALL, ofproto.OFPP_NORMAL):
            return [number for number in usable if number != in_port]
        # Sending back where it came from needs OFPP_IN_PORT to be said.
        return [port] if port in usable and port != in_port else []

    def _packet_in(self, emission: Emission, in_port: int, frame: bytes, reason: int) -> None:
        flow = emission.flow
        self.packet_ins_sent += 1
        self._channel.send(
            replies.packet_in_message(
                frame=frame,
                in_port=in_port,
                reason=reason,
                table=0 if flow is None else flow.table,
                cookie=NO_COOKIE if flow is None else flow.cookie,
            )
        )

    def _packet_out(self, packet: PacketOut) -> None:
        fields = {**fields_of(packet.frame), "in_port": packet.in_port}
        passage = run_actions(fields, packet.actions)
        for port, frame in self._emit(passage, packet.in_port, packet.frame, arrived=False):
            self.network.carry_out(self, port, frame)
