"""The switches of ``tests/controller/test_switch_suite.py``: the fake one, and Open vSwitch.

Both have the same interface.
"""

import re
import subprocess
from dataclasses import dataclass
from typing import Protocol

from tests.support.fake_switch import FakeNetwork, SetField, SetQueue

COOKIE_TAG = 0xF17E << 48


@dataclass(frozen=True, slots=True, order=True)
class FlowOnSwitch:
    """The rule of one port of one flow."""

    port: int
    queue: int
    dscp: int
    meter: int
    version: int


class SuiteSwitch(Protocol):
    """The interface of a switch in the suite."""

    def flows(self) -> list[FlowOnSwitch]:
        """Return the rules of flows, sorted by port."""

    def meters(self) -> dict[int, int]:
        """Return the rates of meters by id."""

    def limit_flows(self, flows: int) -> None:
        """Limit the size of the CLASSIFY table."""

    def disconnect(self) -> None:
        """Close the control channel."""

    def reconnect(self) -> None:
        """Connect again."""

    def restart(self) -> None:
        """Lose all state and connect again."""


class FakeSuiteSwitch:
    """The fake switch ``core``."""

    def __init__(self, network: FakeNetwork, *, bundles: bool = True) -> None:
        self.fake = network.add_switch("core", datapath_id=1, ports=2, connect=False)
        self.fake.limit(bundles=bundles)
        self.fake.start()

    def flows(self) -> list[FlowOnSwitch]:
        found = []
        for flow in self.fake.flows():
            fields = {field.name: field.value for field in flow.match.fields}
            port = fields.get("udp_dst", fields.get("tcp_dst"))
            if port is None or "ipv4_src" not in fields:
                continue
            queues = [a.queue for a in flow.instructions.apply if isinstance(a, SetQueue)]
            marks = [a.value for a in flow.instructions.apply if isinstance(a, SetField)]
            meter = flow.instructions.meter or 0
            found.append(FlowOnSwitch(port, queues[0], marks[0], meter, flow.cookie - COOKIE_TAG))
        return sorted(found)

    def meters(self) -> dict[int, int]:
        return {m.id: m.bands[0].rate for m in self.fake.meters() if m.id < 1 << 31}

    def limit_flows(self, flows: int) -> None:
        self.fake.limit(max_flows=flows)

    def disconnect(self) -> None:
        self.fake.disconnect()

    def reconnect(self) -> None:
        self.fake.reconnect()

    def restart(self) -> None:
        self.fake.restart()


RULE = re.compile(
    r"cookie=0xf17e(?P<version>[0-9a-f]{12}).*nw_src=.*tp_dst=(?P<port>\d+).*"
    r"meter:(?P<meter>\d+),set_field:(?P<dscp>\d+)->ip_dscp,set_queue:(?P<queue>\d+)"
)
METER = re.compile(r"meter=(\d+) .*\n.*rate=(\d+)")


class OpenVSwitch:
    """A bridge ``core`` of a real Open vSwitch, in user space."""

    def __init__(self, controller: tuple[str, int]) -> None:
        self._controller = f"tcp:{controller[0]}:{controller[1]}"
        self._add()

    def _add(self) -> None:
        _run("ovs-vsctl", "--", "add-br", "core", "--", "set", "bridge", "core",
             "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure",
             "other-config:datapath-id=0000000000000001")  # fmt: skip
        self.reconnect()

    def flows(self) -> list[FlowOnSwitch]:
        shown = _run("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", "core", "table=1")
        return sorted(
            FlowOnSwitch(
                port=int(rule["port"]),
                queue=int(rule["queue"]),
                dscp=int(rule["dscp"]),
                meter=int(rule["meter"]),
                version=int(rule["version"], 16),
            )
            for rule in RULE.finditer(shown)
        )

    def meters(self) -> dict[int, int]:
        shown = _run("ovs-ofctl", "-O", "OpenFlow13", "dump-meters", "core")
        return {int(number): int(rate) for number, rate in METER.findall(shown)}

    def limit_flows(self, flows: int) -> None:
        _run("ovs-vsctl", "--", "--id=@small", "create", "Flow_Table", f"flow_limit={flows}",
             "overflow_policy=refuse",
             "--", "set", "bridge", "core", "flow_tables:1=@small")  # fmt: skip

    def disconnect(self) -> None:
        _run("ovs-vsctl", "set-controller", "core", "tcp:127.0.0.1:1")

    def reconnect(self) -> None:
        _run("ovs-vsctl", "set-controller", "core", self._controller, "--",
             "set", "controller", "core", "max_backoff=1000")  # fmt: skip

    def restart(self) -> None:
        self.close()
        self._add()

    def close(self) -> None:
        _run("ovs-vsctl", "del-br", "core")


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
