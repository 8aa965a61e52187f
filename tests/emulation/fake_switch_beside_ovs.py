"""Inside the sandbox: the same messages to Open vSwitch and to the fake; prints what differs."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import fake_switch_cases as cases

from firedex_controller.fake_switch import FakeNetwork, RawChannel, RawController
from firedex_emulation.sandbox import settle_in
from firedex_emulation.switch_host import start_open_vswitch

Switches = tuple[RawChannel, RawChannel]


def vsctl(*words: str) -> None:
    subprocess.run(["ovs-vsctl", *words], check=True, stdout=subprocess.DEVNULL)


def open_vswitch(controller: RawController) -> RawChannel:
    start_open_vswitch()
    target = "tcp:{}:{}".format(*controller.address)
    vsctl(
        *("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"),
        *("fail_mode=secure", "protocols=OpenFlow13", "--", "set-controller", "br0", target),
        *("--", "set", "controller", "br0", "connection_mode=out-of-band"),
    )
    for port in (1, 2, 3):
        name = f"port{port}"
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


def main() -> None:
    settle_in()
    with RawController() as for_real, RawController() as for_fake:
        real = open_vswitch(for_real)
        with FakeNetwork(controller=for_fake.address) as network:
            switch = network.add_switch("fake", datapath_id=1, ports=3)
            both = (real, for_fake.accept())
            found = {
                name: differences(group, both)
                for name, group in (
                    ("meters", cases.METERS),
                    ("flows", cases.FLOWS),
                    ("bundles", cases.BUNDLES),
                )
            }
            vsctl(
                *("--id=@small", "create", "Flow_Table", "flow_limit=3"),
                *("overflow_policy=refuse", "--", "set", "Bridge", "br0", "flow_tables:0=@small"),
            )
            switch.limit(max_flows=3)
            found["full tables"] = differences(cases.ROOM_FOR_3, both)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
