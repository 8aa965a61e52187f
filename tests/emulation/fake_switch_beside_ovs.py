"""Inside the sandbox: the same messages to Open vSwitch and to the fake; prints what differs."""

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import fake_switch_cases as cases
import fake_switch_sequences as sequences
from fake_switch_frames import RealPorts, frame_differences
from hypothesis import given, settings

from firedex_controller.fake_switch import FakeNetwork, RawChannel, RawController
from firedex_emulation.sandbox import settle_in
from firedex_emulation.switch_host import start_open_vswitch

Switches = tuple[RawChannel, RawChannel]
SEQUENCES = 400
PORTS = ["port1", "port2", "port3"]


def vsctl(*words: str) -> None:
    subprocess.run(["ovs-vsctl", *words], check=True, stdout=subprocess.DEVNULL)


def open_vswitch(controller: RawController) -> RawChannel:
    quiet = "net.ipv6.conf.default.disable_ipv6=1"  # else hosts say things of their own
    subprocess.run(["sysctl", "-q", "-w", quiet], check=True)
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
    of_fake = cases.outcome(fake, messages())
    return [cases.outcome(real, messages(), events=len(of_fake["events"])), of_fake]


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
    """The shortest made-up sequence that the two disagree on, if any is found."""
    disagreement: list[str] = []

    @settings(max_examples=SEQUENCES, deadline=None, derandomize=True, database=None)
    @given(sequences.SEQUENCES)
    def agree(made: list[sequences.Making]) -> None:
        real, fake = outcomes(lambda: [message() for message in made], switches)
        if real != fake:
            told = [f"  {message()}" for message in made]
            disagreement[:] = ["\n".join([*told, f"Open vSwitch {real}", f"fake {fake}"])]
        assert real == fake

    with suppress(AssertionError):
        agree()
    return disagreement


def main() -> None:
    settle_in()
    with RawController() as for_real, RawController() as for_fake:
        real = open_vswitch(for_real)
        with FakeNetwork(controller=for_fake.address) as network:
            switch = network.add_switch("fake", datapath_id=1, ports=3)
            for port, name in enumerate(PORTS, start=1):
                network.add_host(
                    name, mac=f"02:00:00:00:00:0{port}", ip="", switch="fake", port=port
                )
            both = (real, for_fake.accept())
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
            # Last: what real frames leave in Open vSwitch's counters comes in late.
            found["frames"] = frame_differences(RealPorts(PORTS), *both, network)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
