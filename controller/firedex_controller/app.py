"""The controller application: thin. Hands what switches say to who keeps them right."""

import logging
import os
import secrets
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
from firedex_controller.api import serve_api
from firedex_controller.capabilities import capabilities
from firedex_controller.errors import ControllerError
from firedex_controller.framework import Application, handler, library, ofp_event, ofproto
from firedex_controller.neighbour_frames import NeighbourFrames
from firedex_controller.network_statistics import StatisticsPoll
from firedex_controller.observed import observed_topology
from firedex_controller.openflow_messages import packet_out
from firedex_controller.reconciler import Reconciler
from firedex_controller.settings import ControllerSettings, SwitchSettings
from firedex_controller.switch_session import SwitchSession, described_ports
from firedex_controller.topology import PortRef

__all__ = ["FiredexController"]

log = logging.getLogger("firedex.controller")

arp, ethernet, ipv4 = (library(f"packet.{name}") for name in ("arp", "ethernet", "ipv4"))
lldp, packet = library("packet.lldp"), library("packet.packet")

ANNOUNCE_SECONDS = 0.3
CONFIRM_SECONDS = 2.0
AGENT_SECONDS = 5.0
ANSWERS = [
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
    """Keeps every switch at the state that was last asked for."""

    OFP_VERSIONS = [ofproto.OFP_VERSION]  # noqa: RUF012  # the framework's own convention

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = ControllerSettings.from_environment(os.environ)
        self._switches = dict(self.settings.switches)
        self._names = {s.datapath_id: name for name, s in self._switches.items()}
        self._sessions: dict[Any, SwitchSession] = {}
        self._frames = NeighbourFrames(secrets.token_bytes(32))
        self._reconciler = Reconciler(self._switches, self._agent_of, self.settings.state)
        self._statistics = StatisticsPoll(self._reconciler)
        self._announced: dict[str, list[PortRef]] = {}
        for work in (
            self._reconciler.run,
            self._statistics.run,
            self._announce,
            self._confirm_announcements,
            lambda: serve_api(self),
        ):
            threading.Thread(target=work, daemon=True).start()

    # -- what the API asks ---------------------------------------------------------------------

    def put_network(self, network: DesiredNetwork) -> NetworkChange:
        """Bring all switches to ``network``, or none."""
        return self._reconciler.put_network(network)

    def network(self) -> DesiredNetwork | None:
        """What is desired now."""
        return self._reconciler.desired

    def topology(self) -> NetworkTopology:
        """Who is where."""
        return observed_topology(self._reconciler, self._switches)

    def capabilities(self) -> list[SwitchCapabilities]:
        """What the connected switches can do."""
        return capabilities(self._reconciler.sessions, self._switches, self._agent_of)

    def statistics(self) -> NetworkStatistics:
        """The counters."""
        return self._statistics.look()

    def _agent_of(self, switch: SwitchSettings) -> AgentClient:
        return AgentClient(
            switch.agent, token=self.settings.agent_token, timeout_seconds=AGENT_SECONDS
        )

    # -- what switches say ---------------------------------------------------------------------

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPStateChange, [handler.MAIN_DISPATCHER, handler.DEAD_DISPATCHER]
    )
    def _joined_or_left(self, event: Any) -> None:
        datapath = event.datapath
        if event.state == handler.DEAD_DISPATCHER:
            session = self._sessions.pop(datapath, None)
            if session is not None:
                self._reconciler.switch_left(session)
            return
        name = self._names.get(datapath.id)
        if name is None:
            log.warning("an unknown switch connected: datapath %016x", datapath.id)
            return
        self._sessions[datapath] = self._reconciler.switch_joined(name, datapath)

    @handler.set_ev_cls(ANSWERS, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _answered(self, event: Any) -> None:
        session = self._sessions.get(event.msg.datapath)
        if session is not None:
            session.conversation.heard(event.msg)

    @handler.set_ev_cls(ofp_event.EventOFPErrorMsg, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _refused(self, event: Any) -> None:
        session = self._sessions.get(event.msg.datapath)
        if session is not None:
            session.conversation.heard_error(event.msg)

    @handler.set_ev_cls(ofp_event.EventOFPPortStatus, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _port_changed(self, event: Any) -> None:
        name = self._names.get(event.msg.datapath.id)
        if name is None:
            return
        for port in described_ports([event.msg.desc]):
            if event.msg.reason == ofproto.OFPPR_DELETE:
                self._reconciler.port_removed(name, port.number)
            else:
                self._reconciler.port_changed(name, port)

    @handler.set_ev_cls(ofp_event.EventOFPPacketIn, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _packet_in(self, event: Any) -> None:
        name = self._names.get(event.msg.datapath.id)
        port = event.msg.match.get("in_port")
        if name is None or port is None or port > ofproto.OFPP_MAX:
            return
        place = PortRef(name, port)
        try:
            frame = packet.Packet(event.msg.data)
        except Exception:  # whatever hosts send, the framework's parsers raise anything
            return
        heard = frame.get_protocol(lldp.lldp)
        if heard is not None:
            sender = self._frames.sender(heard)
            if sender is not None:
                self._reconciler.heard_neighbour(place, sender)
            return
        source = frame.get_protocol(ethernet.ethernet)
        if source is not None and not int(source.src[:2], 16) & 1:
            self._reconciler.heard_host(place, source.src, _address(frame))

    def _announce(self) -> None:
        """Tell every switch's neighbours that it is there, again and again; waits for nobody."""
        pause = threading.Event()
        while not pause.wait(ANNOUNCE_SECONDS):
            for name, session in dict(self._reconciler.sessions).items():
                places = []
                for port in self._reconciler.ports.get(name, {}).values():
                    if port.up:
                        places.append(PortRef(name, port.number))
                        frame = self._frames.make(places[-1], port.hardware_address)
                        session.datapath.send_msg(packet_out(session.datapath, port.number, frame))
                self._announced[name] = places

    def _confirm_announcements(self) -> None:
        """Count the announcements whose answers, if there are any, have come in.

        That is so when every switch has passed two barriers since: by the first what was announced
        has left, by the second whatever the neighbours said of it has been heard. Who does not
        answer in time does not count, and keeps nobody waiting for long.
        """
        pause = threading.Event()
        while not pause.wait(ANNOUNCE_SECONDS):
            sessions = dict(self._reconciler.sessions)
            made = {name: self._announced.get(name, []) for name in sessions}
            for name, session in [*sessions.items(), *sessions.items()]:
                try:
                    session.conversation.barrier(CONFIRM_SECONDS)
                except ControllerError:
                    made.pop(name, None)
            for places in made.values():
                self._reconciler.announced(places)


def _address(frame: Any) -> IPv4Address | None:
    """The sender's address, where a frame says it."""
    asked = frame.get_protocol(arp.arp)
    sent = frame.get_protocol(ipv4.ipv4)
    said = asked.src_ip if asked is not None else sent.src if sent is not None else None
    address = IPv4Address(said) if said else None
    return None if address is None or address.is_unspecified else address
