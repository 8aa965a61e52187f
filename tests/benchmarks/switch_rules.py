"""``firedex bench rules``: the time from one PUT to the last barrier, for many rules.

As root it runs on Open vSwitch in a sandbox; otherwise it uses the fake switch and reports this.
The module is also the program that runs in the sandbox.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from ipaddress import IPv4Address
from pathlib import Path

from firedex.lab.benchmarks import BenchmarkResult, Comparison, Report
from firedex.wire import (
    DesiredNetwork,
    DesiredSwitch,
    FlowEndpoints,
    FlowRule,
    NetworkChange,
    PacketLimit,
    from_json,
    to_json,
)
from firedex_emulation.errors import PartFailed, RequirementsMissing
from firedex_emulation.testbed.sandbox import (
    RUN,
    check_requirements,
    enter_sandbox,
    run_in_sandbox,
    start_open_vswitch,
)

__all__ = ["CONTROLLER_PORT", "Timing", "rule_speed", "time_rules"]

CONTROLLER_PORT, API_PORT = 16_653, 18_080
NUMBERS_OF_FLOWS = (100, 1_000, 5_000)
CLASSES = 8
READY_SECONDS = 30.0
CONTROLLER = [sys.executable, "-W", "ignore", "-c",
              "from firedex_controller.command import controller; controller()"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timing:
    """One change: the number of flows and of rules that were sent, and the time it took."""

    change: str
    flows: int
    rules: int
    seconds: float


def network_with(count: int, *, changed: bool = False) -> DesiredNetwork:
    """Return a network with ``count`` flows; ``changed`` moves every other one to another class."""
    first = int(IPv4Address("10.1.0.1"))
    return DesiredNetwork(
        configuration_version=2 if changed else 1,
        switches=(
            DesiredSwitch(
                switch="core",
                flows=tuple(
                    FlowRule(
                        subscriber=f"s{number // CLASSES}",
                        flow=number % CLASSES,
                        priority=(number + (changed and number % 2)) % CLASSES,
                        endpoints=FlowEndpoints(
                            transport="udp",
                            subscriber_address=IPv4Address(first + number // CLASSES),
                            subscriber_ports=(20_000 + 2 * (number % 8), 20_001 + 2 * (number % 8)),
                            gateway_address=IPv4Address("10.0.0.10"),
                            gateway_port=1884,
                        ),
                        limit=PacketLimit(packets_per_second=200.0, burst_packets=200),
                    )
                    for number in range(count)
                ),
            ),
        ),
    )


def time_rules(folder: Path, connect: Callable[[], None]) -> list[Timing]:
    """Start a controller, connect a switch, and time changes of each number of flows."""
    command = [*CONTROLLER, "--switch", "core=0000000000000001"]
    command += ["--listen", f"127.0.0.1:{CONTROLLER_PORT}", "--api", f"127.0.0.1:{API_PORT}"]
    command += ["--state", str(folder / "controller.json")]
    with (folder / "controller.log").open("wb") as log:
        controller = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until(lambda: _request("GET", "/v1/health")[0] == http.client.OK)
        connect()
        _wait_until(_is_settled)
        timings = []
        for count in NUMBERS_OF_FLOWS:
            empty = DesiredNetwork(configuration_version=3, switches=())
            timings.append(_time_change("adding all flows", count, network_with(count)))
            changed = network_with(count, changed=True)
            timings.append(_time_change("changing the class of every other flow", count, changed))
            timings.append(_time_change("removing all flows", count, empty))
        return timings
    finally:
        controller.kill()
        controller.wait()


def _time_change(change: str, flows: int, network: DesiredNetwork) -> Timing:
    status, body = _request("PUT", "/v1/network", to_json(network))
    if status != http.client.OK:
        raise PartFailed("controller", body.decode(errors="replace"))
    (core,) = from_json(NetworkChange, body).switches
    sent = core.flows_added + core.flows_modified + core.flows_removed
    sent += core.meters_added + core.meters_modified + core.meters_removed
    return Timing(change, flows, sent, core.seconds)


def _is_settled() -> bool:
    (core,) = json.loads(_request("GET", "/v1/topology")[1])["switches"]
    return bool(core["settled"])


def _wait_until(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise PartFailed("controller", f"timeout of {READY_SECONDS:g} s")


def _request(method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=120)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _create_bridge() -> None:
    command = ["ovs-vsctl", "--", "add-br", "core", "--", "set", "bridge", "core"]
    command += ["datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure"]
    command += ["other-config:datapath-id=0000000000000001", "--", "set-controller", "core"]
    subprocess.run([*command, f"tcp:127.0.0.1:{CONTROLLER_PORT}"], check=True)


TIMEOUT_SECONDS = 300.0
MAX_GROWTH = 2.0
"""The time per flow may grow by at most this factor from 100 flows to more."""
FAKE_SWITCH_COMMAND = [sys.executable, "-W", "ignore", "-m", "tests.support.fake_switch"]


def rule_speed(report: Report) -> BenchmarkResult:
    """Add 100, 1 000 and 5 000 flows, change half of them, and remove them."""
    try:
        check_requirements()
    except RequirementsMissing as reason:
        switch = f"the fake switch ({reason})"
        report(f"rules: on {switch}")
        timings = _time_on_fake_switch()
    else:
        switch = "Open vSwitch"
        report(f"rules: on {switch}, in a sandbox")
        printed = run_in_sandbox(
            "tests.benchmarks.switch_rules", [], timeout_seconds=TIMEOUT_SECONDS
        )
        timings = [Timing(*row) for row in json.loads(printed)]
    return BenchmarkResult(
        name="rules",
        comparisons=tuple(_growth(small, large, switch) for small, large in _pairs(timings)),
    )


def _pairs(timings: list[Timing]) -> list[tuple[Timing, Timing]]:
    """Pair the smallest number of flows with each larger one, for each kind of change."""
    first: dict[str, Timing] = {}
    pairs = []
    for timing in timings:
        smallest = first.setdefault(timing.change, timing)
        if smallest is not timing:
            pairs.append((smallest, timing))
    return pairs


def _growth(small: Timing, large: Timing, switch: str) -> Comparison:
    def describe(timing: Timing) -> str:
        return (
            f"{timing.flows} flows in {timing.seconds:.3f} s: "
            f"{timing.rules / timing.seconds:.0f} rules/s to the barrier"
        )

    return Comparison(
        what=f"{large.change}, on {switch}",
        left=describe(large),
        left_value=1000 * large.seconds / large.flows,
        right=describe(small),
        right_value=1000 * small.seconds / small.flows,
        unit="ms per flow",
        at_most=MAX_GROWTH,
    )


def _time_on_fake_switch() -> list[Timing]:
    with tempfile.TemporaryDirectory() as folder:
        switch: list[subprocess.Popen[bytes]] = []

        def connect() -> None:
            command = [*FAKE_SWITCH_COMMAND, "--controller", f"127.0.0.1:{CONTROLLER_PORT}"]
            command += ["--switch", "core=0000000000000001", "--ports", "2"]
            switch.append(subprocess.Popen(command))

        try:
            return time_rules(Path(folder), connect)
        finally:
            for process in switch:
                process.kill()
                process.wait()


if __name__ == "__main__":
    enter_sandbox()
    start_open_vswitch()
    print(json.dumps([astuple(timing) for timing in time_rules(RUN, _create_bridge)]))
