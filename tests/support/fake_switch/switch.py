"""A fake switch: ports, a control channel, and the processing of packets."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from firedex_controller.framework import ofproto
from tests.support.fake_switch import replies
from tests.support.fake_switch.channels import ControlChannel
from tests.support.fake_switch.flow_entries import FakeFlow
from tests.support.fake_switch.openflow_agent import OpenFlowAgent
from tests.support.fake_switch.pipeline import (
    NO_COOKIE,
    PacketOutput,
    PacketState,
    change_frame,
    frame_fields,
    packet_fields,
    run_actions,
    run_tables,
)
from tests.support.fake_switch.replies import PortTraffic
from tests.support.fake_switch.requests import PacketOut, ReceivedMessage, change_order
from tests.support.fake_switch.tables import FakeMeter

if TYPE_CHECKING:
    from tests.support.fake_switch.network import FakeNetwork, FramePath

__all__ = ["FakeSwitch", "Trace"]

BROADCAST_BIT = 1 << 40


@dataclass(frozen=True, slots=True)
class Trace:
    """The processing of a packet by a switch; ``output_ports`` contains each port of a flood."""

    dscp: int | None
    queue: int | None
    meters: tuple[int, ...]
    output_ports: tuple[int, ...]
    packet_in: bool
    flows: tuple[FakeFlow, ...]


class FakeSwitch:
    """One switch of a ``FakeNetwork``; use ``FakeNetwork.add_switch``."""

    def __init__(
        self, network: FakeNetwork, name: str, datapath_id: int, port_names: Sequence[str]
    ) -> None:
        self.network, self.name, self.datapath_id = network, name, datapath_id
        self._lock = network.lock
        numbers = range(1, len(port_names) + 1)
        self.port_names = dict(zip(numbers, port_names, strict=True))
        self._down: set[int] = set()
        self._traffic = {number: PortTraffic(number, monotonic()) for number in numbers}
        self._learned_ports: dict[int, int] = {}
        self.packet_ins_sent = 0
        self.agent = OpenFlowAgent(datapath_id, self, self._packet_out)
        self._channel = ControlChannel(
            network.controller,
            on_connect=self._on_connect,
            handle=self._handle,
            on_lost=self._on_channel_lost,
        )

    # -- queries of tests -----------------------------------------------------------------------

    def flows(self) -> frozenset[FakeFlow]:
        """Return all flows, which can be compared with those of another switch or time."""
        with self._lock:
            return frozenset(stored.flow for stored in self.agent.flows)

    def meters(self) -> frozenset[FakeMeter]:
        """Return all meters, which can be compared with those of another switch or time."""
        with self._lock:
            return frozenset(stored.meter for stored in self.agent.meters.stored.values())

    def packets_of(self, flow: FakeFlow) -> int:
        """Return the packet counter of a flow."""
        with self._lock:
            return next(s.counters.packets for s in self.agent.flows if s.flow == flow)

    def received(self) -> list[ReceivedMessage]:
        """Return every message of the controller, in order."""
        with self._lock:
            return list(self.agent.received)

    def order(self) -> list[str]:
        """Return the kinds of messages in order; consecutive equal kinds count once."""
        return change_order(self.received())

    def clear_received(self) -> None:
        """Clear the record of received messages."""
        with self._lock:
            self.agent.received.clear()

    def limit(
        self,
        *,
        max_flows: int | None = None,
        max_meters: int | None = None,
        bundles: bool | None = None,
    ) -> None:
        """Limit the switch: flows in each table, meters, support of bundles."""
        with self._lock:
            if max_flows is not None:
                self.agent.flows.max_flows = max_flows
            if max_meters is not None:
                self.agent.meters.max_meters = max_meters
            if bundles is not None:
                self.agent.bundles_supported = bundles

    # -- the control channel -------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the controller, and reconnect whenever the channel is lost."""
        self._channel.start()

    def disconnect(self) -> None:
        """Close the control channel until ``reconnect``; flows and meters stay."""
        self._channel.disconnect()

    def reconnect(self) -> None:
        """Connect again."""
        self._channel.reconnect()

    def restart(self) -> None:
        """Lose all state, close the channel, and connect again."""
        self._channel.disconnect()
        with self._lock:
            self.agent.delete_all()
            self._learned_ports.clear()
        self._channel.reconnect()

    def close(self) -> None:
        """Stop the switch."""
        self._channel.close()

    @property
    def connected(self) -> threading.Event:
        """An event that is set while the control channel is open."""
        return self._channel.connected

    def _on_connect(self) -> None:
        self._channel.send(replies.hello_message())

    def _handle(self, message: bytes) -> None:
        with self._lock:
            for reply in self.agent.handle(message):
                self._channel.send(reply)

    def _on_channel_lost(self) -> None:
        with self._lock:
            self.agent.reset_channel()

    # -- ports ---------------------------------------------------------------------------------

    def port_number(self, port: int | str) -> int:
        """Return the number of a port, given by name or number."""
        if isinstance(port, int):
            return port
        return next(number for number, name in self.port_names.items() if name == port)

    def port_descriptions(self) -> list[replies.PortDescription]:
        """Return the descriptions of all ports."""
        return [self._port_description(number) for number in self.port_names]

    def _port_description(self, number: int) -> replies.PortDescription:
        mac = (0x02 << 40 | (self.datapath_id & 0xFFFFFF) << 16 | number).to_bytes(6, "big")
        up = number not in self._down
        return replies.PortDescription(number, self.port_names[number], mac, up)

    def port_traffic(self) -> list[PortTraffic]:
        """Return the counters of all ports."""
        return list(self._traffic.values())

    def set_port_up(self, port: int | str, *, up: bool, notify: bool = True) -> None:
        """Set the state of a port; notify the controller if ``notify``."""
        number = self.port_number(port)
        with self._lock:
            (self._down.discard if up else self._down.add)(number)
            if notify:
                self._channel.send(replies.port_status_message(self._port_description(number)))

    # -- packets -------------------------------------------------------------------------------

    def trace(self, in_port: int | str, **fields: Any) -> Trace:
        """Return what would be done with a packet, without counting, sending or learning."""
        number = self.port_number(in_port)
        with self._lock:
            packet = {**packet_fields(**fields), "in_port": number}
            state = run_tables(packet, self.agent.flows)
            ports = [
                port
                for output in state.outputs
                for port in self._real_ports(output.port, number, state.fields)
            ]
            to_controller = (e.port == ofproto.OFPP_CONTROLLER for e in state.outputs)
            return Trace(
                dscp=state.fields.get("ip_dscp"),
                queue=state.queue,
                meters=tuple(state.meters),
                output_ports=tuple(ports),
                packet_in=any(to_controller),
                flows=tuple(stored.flow for stored in state.matched),
            )

    def inject(self, in_port: int | str, frame: bytes) -> FramePath:
        """Send a frame into a port and through the network."""
        return self.network.deliver(self, self.port_number(in_port), frame)

    def process_frame(self, in_port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Process an incoming frame; return the outgoing frames with their ports."""
        self._traffic[in_port].received_packets += 1
        self._traffic[in_port].received_octets += len(frame)
        fields = {**frame_fields(frame), "in_port": in_port}
        if not fields.get("eth_src", BROADCAST_BIT) & BROADCAST_BIT:
            self._learned_ports[fields["eth_src"]] = in_port
        return self._run_through_tables(in_port, fields, frame)

    def _run_through_tables(
        self, in_port: int, fields: dict[str, int], frame: bytes, *, arrived: bool = True
    ) -> list[tuple[int, bytes]]:
        state = run_tables(fields, self.agent.flows)
        for stored in state.matched:
            stored.counters.packets += 1
            stored.counters.octets += len(frame)
        for meter in state.meters:
            self.agent.meters.count(meter, len(frame))
        return self._emit(state, in_port, frame, arrived=arrived)

    def _emit(
        self, state: PacketState, in_port: int, frame: bytes, *, arrived: bool
    ) -> list[tuple[int, bytes]]:
        sent = []
        for output in state.outputs:
            changed = change_frame(frame, dict(output.changes))
            if output.port == ofproto.OFPP_CONTROLLER:
                miss = arrived and output.is_table_miss
                reason = ofproto.OFPR_NO_MATCH if miss else ofproto.OFPR_ACTION
                self._packet_in(output, in_port, changed, reason)
            elif output.port == ofproto.OFPP_TABLE:
                fields = {**frame_fields(changed), "in_port": in_port}
                sent += self._run_through_tables(in_port, fields, changed, arrived=arrived)
            for port in self._real_ports(output.port, in_port, state.fields):
                self._traffic[port].sent_packets += 1
                self._traffic[port].sent_octets += len(changed)
                sent.append((port, changed))
        return sent

    def _real_ports(self, port: int, in_port: int, fields: dict[str, int]) -> list[int]:
        usable = [number for number in self.port_names if number not in self._down]
        if port == ofproto.OFPP_IN_PORT:
            return [in_port] if in_port in usable else []
        if port == ofproto.OFPP_NORMAL and fields.get("eth_dst") in self._learned_ports:
            port = self._learned_ports[fields["eth_dst"]]
        elif port in (ofproto.OFPP_FLOOD, ofproto.OFPP_ALL, ofproto.OFPP_NORMAL):
            return [number for number in usable if number != in_port]
        # Output to the incoming port needs OFPP_IN_PORT.
        return [port] if port in usable and port != in_port else []

    def _packet_in(self, output: PacketOutput, in_port: int, frame: bytes, reason: int) -> None:
        flow = output.flow
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
        fields = {**frame_fields(packet.frame), "in_port": packet.in_port}
        state = run_actions(fields, packet.actions)
        for port, frame in self._emit(state, packet.in_port, packet.frame, arrived=False):
            self.network.send_from_port(self, port, frame)
