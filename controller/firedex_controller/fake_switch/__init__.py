"""A fake switch that speaks real OpenFlow 1.3 over TCP: controllers are tested without root.

It applies what it is told as Open vSwitch does, errors included (a test runs the same messages on
both), and answers what its tables would do with a packet. It does not police, queue or expire::

    with FakeNetwork(controller=("127.0.0.1", 6653)) as network:
        core = network.add_switch("core", datapath_id=1, ports=4)
        …
        assert core.trace(1, ipv4_dst="10.0.0.2", udp_dst=5000).queue == 3
"""

from firedex_controller.fake_switch.flow_entries import (
    FakeFlow,
    FlowChange,
    Instructions,
    Output,
    SetField,
    SetQueue,
)
from firedex_controller.fake_switch.match_fields import Match, MatchField
from firedex_controller.fake_switch.meter_table import FakeMeter, MeterBand, MeterChange
from firedex_controller.fake_switch.network import (
    FakeHost,
    FakeLink,
    FakeNetwork,
    Journey,
    UnknownPart,
)
from firedex_controller.fake_switch.raw_controller import RawChannel, RawController
from firedex_controller.fake_switch.received_messages import Received
from firedex_controller.fake_switch.switch import FakeSwitch, Trace

__all__ = [
    "FakeFlow",
    "FakeHost",
    "FakeLink",
    "FakeMeter",
    "FakeNetwork",
    "FakeSwitch",
    "FlowChange",
    "Instructions",
    "Journey",
    "Match",
    "MatchField",
    "MeterBand",
    "MeterChange",
    "Output",
    "RawChannel",
    "RawController",
    "Received",
    "SetField",
    "SetQueue",
    "Trace",
    "UnknownPart",
]
