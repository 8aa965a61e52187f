"""Inside the sandbox: send the same messages to Open vSwitch and the fake; print differences."""

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given, settings

from firedex_emulation.testbed.sandbox import enter_sandbox, start_open_vswitch
from tests.on_switches.programs import fake_switch_cases as cases
from tests.on_switches.programs import fake_switch_sequences as sequences
from tests.on_switches.programs.fake_switch_frames import RealPorts, frame_differences
from tests.support.fake_switch import FakeNetwork, RawChannel, RawController

Switches = tuple[RawChannel, RawChannel]
SEQUENCES = 400
PORTS = ["port1", "port2", "port3"]


def vsctl(*arguments: str) -> None:
    subprocess.run(["ovs-vsctl", *arguments], check=True, stdout=subprocess.DEVNULL)


def open_vswitch(controller: RawController) -> RawChannel:
    disable_ipv6 = (
        "net.ipv6.conf.default.disable_ipv6=1"  # otherwise hosts send packets of their own
    )
    subprocess.run(["sysctl", "-q", "-w", disable_ipv6], check=True)
    start_open_vswitch()
    target = "tcp:{}:{}".format(*controller.address)
    vsctl(
        *("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"),
        *("fail_mode=secure", "protocols=OpenFlow13", "--", "set-controller", "br0", target),
        *("--", "set", "controller", "br0", "connection_mode=out-of-band"),
    )
    for name in PORTS:
        vsctl("add-port", "br0", name, "--", "set", "interface", name, "type=internal")
    return controller.accept()


def outcomes(messages: Callable[[], cases.Messages], switches: Switches) -> list[dict[str, Any]]:
    real, fake = switches
    fake_outcome = cases.outcome(fake, messages())
    return [cases.outcome(real, messages(), events=len(fake_outcome["events"])), fake_outcome]


def differences(group: dict[str, Callable[[], cases.Messages]], switches: Switches) -> list[str]:
    found = []
    for name, messages in group.items():
        real, fake = outcomes(messages, switches)
        found += [
            f"{name}, {what}:\n  Open vSwitch {real[what]}\n  fake {fake[what]}"
            for what in real
            if real[what] != fake[what]
        ]
    return found


def sequence_difference(switches: Switches) -> list[str]:
    """Return the shortest generated sequence with different outcomes, if any."""
    disagreement: list[str] = []

    @settings(max_examples=SEQUENCES, deadline=None, derandomize=True, database=None)
    @given(sequences.SEQUENCES)
    def agree(factories: list[sequences.MessageFactory]) -> None:
        real, fake = outcomes(lambda: [message() for message in factories], switches)
        if real != fake:
            lines = [f"  {message()}" for message in factories]
            disagreement[:] = ["\n".join([*lines, f"Open vSwitch {real}", f"fake {fake}"])]
        assert real == fake

    with suppress(AssertionError):
        agree()
    return disagreement


def main() -> None:
    enter_sandbox()
    with RawController() as real_controller, RawController() as fake_controller:
        real = open_vswitch(real_controller)
        with FakeNetwork(controller=fake_controller.address) as network:
            switch = network.add_switch("fake", datapath_id=1, ports=3)
            for port, name in enumerate(PORTS, start=1):
                network.add_host(
                    name, mac=f"02:00:00:00:00:0{port}", ip="", switch="fake", port=port
                )
            both = (real, fake_controller.accept())
            found = {
                name: differences(group, both)
                for name, group in (
                    ("meters", cases.METERS),
                    ("flows", cases.FLOWS),
                    ("bundles", cases.BUNDLES),
                )
            }
            found["made-up sequences"] = sequence_difference(both)
            vsctl(
                *("--id=@small", "create", "Flow_Table", "flow_limit=3"),
                *("overflow_policy=refuse", "--", "set", "Bridge", "br0", "flow_tables:0=@small"),
            )
            switch.limit(max_flows=3)
            found["full tables"] = differences(cases.ROOM_FOR_3, both)
            vsctl("clear", "Bridge", "br0", "flow_tables")
            switch.limit(max_flows=1000)
            # This is last because Open vSwitch updates its counters of real frames with a delay.
            found["frames"] = frame_differences(RealPorts(PORTS), *both, network)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
