"""A fake switch that speaks OpenFlow 1.3 over TCP, for tests of a controller without root.

It handles messages as Open vSwitch does, including errors (a test sends the same messages to both),
and traces packets through its tables. It does not police, queue or expire flows::

    with FakeNetwork(controller=("127.0.0.1", 6653)) as network:
        core = network.add_switch("core", datapath_id=1, ports=4)
        …
        assert core.trace(1, ipv4_dst="10.0.0.2", udp_dst=5000).queue == 3
"""

from tests.support.fake_switch.channels import RawChannel, RawController
from tests.support.fake_switch.flow_entries import (
    FakeFlow,
    FlowChange,
    Instructions,
    Match,
    MatchField,
    Output,
    SetField,
    SetQueue,
)
from tests.support.fake_switch.network import (
    FakeHost,
    FakeLink,
    FakeNetwork,
    FramePath,
    UnknownPart,
)
from tests.support.fake_switch.requests import ReceivedMessage
from tests.support.fake_switch.switch import FakeSwitch, Trace
from tests.support.fake_switch.tables import FakeMeter, MeterBand, MeterChange

__all__ = [
    "FakeFlow",
    "FakeHost",
    "FakeLink",
    "FakeMeter",
    "FakeNetwork",
    "FakeSwitch",
    "FlowChange",
    "FramePath",
    "Instructions",
    "Match",
    "MatchField",
    "MeterBand",
    "MeterChange",
    "Output",
    "RawChannel",
    "RawController",
    "ReceivedMessage",
    "SetField",
    "SetQueue",
    "Trace",
    "UnknownPart",
]
