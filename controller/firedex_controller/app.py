"""The controller application: it passes switch messages to the reconciler and serves the API."""

import logging
import os
import threading
from ipaddress import IPv4Address
from typing import Any

from firedex.wire import (
    DesiredNetwork,
    NetworkChange,
    NetworkStatistics,
    NetworkTopology,
    SwitchCapabilities,
)
from firedex_controller.agent.client import AgentClient
from firedex_controller.api import api_server
from firedex_controller.framework import Application, handler, library, ofp_event, ofproto
from firedex_controller.neighbour_discovery import NeighbourDiscovery
from firedex_controller.reconciler import Reconciler
from firedex_controller.reports import StatisticsPoller, observed_topology, switch_capabilities
from firedex_controller.settings import ControllerSettings
from firedex_controller.switch_session import SwitchSession, ports_from_descriptions
from firedex_controller.topology import PortRef

__all__ = ["FiredexController"]

log = logging.getLogger("firedex.controller")

arp, ethernet, ipv4 = (library(f"packet.{name}") for name in ("arp", "ethernet", "ipv4"))
lldp, packet = library("packet.lldp"), library("packet.packet")

AGENT_TIMEOUT_SECONDS = 5.0
GROUP_ADDRESS_BIT = 1
"""Bit of the first byte that marks a group address; no host has such an address."""
REPLIES = [
    ofp_event.EventOFPBarrierReply,
    ofp_event.EventOFPFlowStatsReply,
    ofp_event.EventOFPMeterConfigStatsReply,
    ofp_event.EventOFPMeterFeaturesStatsReply,
    ofp_event.EventOFPMeterStatsReply,
    ofp_event.EventOFPPortDescStatsReply,
    ofp_event.EventOFPPortStatsReply,
    ofp_event.EventONFBundleCtrlMsg,
]


class FiredexController(Application):  # type: ignore[misc]  # untyped framework
    """Keep every switch in the state that the desired network requires."""

    OFP_VERSIONS = [ofproto.OFP_VERSION]  # noqa: RUF012  # the convention of the framework

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = ControllerSettings.from_environment(os.environ)
        self._switches = dict(settings.switches)
        self._names = {s.datapath_id: name for name, s in self._switches.items()}
        self._sessions: dict[Any, SwitchSession] = {}
        self._agents = {
            name: AgentClient(
                switch.agent, token=settings.agent_token, timeout_seconds=AGENT_TIMEOUT_SECONDS
            )
            for name, switch in self._switches.items()
        }
        self._reconciler = Reconciler(self._switches, self._agents, settings.state)
        self._statistics = StatisticsPoller(self._reconciler)
        self._neighbours = NeighbourDiscovery(self._reconciler)
        server = api_server(self, (settings.api_host, settings.api_port), settings.token)
        for function in (
            self._reconciler.run,
            self._statistics.run,
            self._neighbours.announce,
            self._neighbours.confirm_announcements,
            server.serve_forever,
        ):
            threading.Thread(target=function, daemon=True).start()

    # -- requests of the API -------------------------------------------------------------------

    def put_network(self, network: DesiredNetwork) -> NetworkChange:
        """Apply ``network`` to all switches, or to none of them."""
        return self._reconciler.put_network(network)

    def network(self) -> DesiredNetwork | None:
        """Return the desired network."""
        return self._reconciler.desired

    def topology(self) -> NetworkTopology:
        """Return switches, links and hosts."""
        return observed_topology(self._reconciler, self._switches)

    def capabilities(self) -> list[SwitchCapabilities]:
        """Return the capabilities of the connected switches."""
        return switch_capabilities(self._reconciler.sessions, self._switches, self._agents)

    def statistics(self) -> NetworkStatistics:
        """Return the counters of all switches."""
        return self._statistics.poll()

    # -- messages of switches ------------------------------------------------------------------

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPStateChange, [handler.MAIN_DISPATCHER, handler.DEAD_DISPATCHER]
    )
    def _connection_changed(self, event: Any) -> None:
        datapath = event.datapath
        if event.state == handler.DEAD_DISPATCHER:
            session = self._sessions.pop(datapath, None)
            if session is not None:
                self._reconciler.switch_disconnected(session)
            return
        name = self._names.get(datapath.id)
        if name is None:
            log.warning("an unknown switch connected: datapath id %016x", datapath.id)
            return
        self._sessions[datapath] = self._reconciler.switch_connected(name, datapath)

    @handler.set_ev_cls(REPLIES, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _reply_received(self, event: Any) -> None:
        session = self._sessions.get(event.msg.datapath)
        if session is not None:
            session.channel.handle_reply(event.msg)

    @handler.set_ev_cls(ofp_event.EventOFPErrorMsg, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _error_received(self, event: Any) -> None:
        session = self._sessions.get(event.msg.datapath)
        if session is not None:
            session.channel.handle_error(event.msg)

    @handler.set_ev_cls(ofp_event.EventOFPPortStatus, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _port_changed(self, event: Any) -> None:
        name = self._names.get(event.msg.datapath.id)
        if name is None:
            return
        for port in ports_from_descriptions([event.msg.desc]):
            if event.msg.reason == ofproto.OFPPR_DELETE:
                self._reconciler.port_removed(name, port.number)
            else:
                self._reconciler.port_changed(name, port)

    @handler.set_ev_cls(ofp_event.EventOFPPacketIn, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _packet_in(self, event: Any) -> None:
        name = self._names.get(event.msg.datapath.id)
        number = event.msg.match.get("in_port")
        if name is None or number is None or number > ofproto.OFPP_MAX:
            return
        port = PortRef(name, number)
        try:
            frame = packet.Packet(event.msg.data)
        except Exception:  # the framework's parsers raise any exception for a malformed frame
            return
        received = frame.get_protocol(lldp.lldp)
        if received is not None:
            self._neighbours.frame_received(port, received)
            return
        header = frame.get_protocol(ethernet.ethernet)
        if header is not None and not int(header.src[:2], 16) & GROUP_ADDRESS_BIT:
            self._reconciler.host_seen(port, header.src, _source_address(frame))


def _source_address(frame: Any) -> IPv4Address | None:
    """Return the sender's IPv4 address if the frame contains it."""
    arp_header = frame.get_protocol(arp.arp)
    ip_header = frame.get_protocol(ipv4.ipv4)
    text = arp_header.src_ip if arp_header is not None else ip_header.src if ip_header else None
    address = IPv4Address(text) if text else None
    return None if address is None or address.is_unspecified else address
