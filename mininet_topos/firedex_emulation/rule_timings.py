"""Times what a controller takes to bring a switch to many rules. Also a sandbox's program."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from ipaddress import IPv4Address
from pathlib import Path

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
from firedex_emulation.errors import PartFailed
from firedex_emulation.sandbox import RUN, settle_in
from firedex_emulation.switch_host import start_open_vswitch

__all__ = ["CONTROLLER_PORT", "Timing", "time_rules"]

CONTROLLER_PORT, API_PORT = 16_653, 18_080
NUMBERS_OF_FLOWS = (100, 1_000, 5_000)
CLASSES = 8
PATIENCE_SECONDS = 30.0
CONTROLLER = [sys.executable, "-W", "ignore", "-c",
              "from firedex_controller.command import controller; controller()"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timing:
    """One change: how many flows it was about, how many rules were sent, and how long it took."""

    change: str
    flows: int
    rules: int
    seconds: float


def flows_of(count: int, *, changed: bool = False) -> DesiredNetwork:
    """So many flows; ``changed`` moves every other one to another class."""
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
    """Start a controller, let ``connect`` bring the switch, and put flows of every number."""
    command = [*CONTROLLER, "--switch", "core=0000000000000001"]
    command += ["--listen", f"127.0.0.1:{CONTROLLER_PORT}", "--api", f"127.0.0.1:{API_PORT}"]
    command += ["--state", str(folder / "controller.json")]
    with (folder / "controller.log").open("wb") as log:
        controller = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait(lambda: _ask("GET", "/v1/health")[0] == http.client.OK)
        connect()
        _wait(_settled)
        timings = []
        for count in NUMBERS_OF_FLOWS:
            empty = DesiredNetwork(configuration_version=3, switches=())
            timings.append(_timed("putting flows where there were none", count, flows_of(count)))
            changed = flows_of(count, changed=True)
            timings.append(_timed("changing the class of every other flow", count, changed))
            timings.append(_timed("taking all flows away", count, empty))
        return timings
    finally:
        controller.kill()
        controller.wait()


def _timed(what: str, flows: int, network: DesiredNetwork) -> Timing:
    status, body = _ask("PUT", "/v1/network", to_json(network))
    if status != http.client.OK:
        raise PartFailed("controller", body.decode(errors="replace"))
    (core,) = from_json(NetworkChange, body).switches
    sent = core.flows_added + core.flows_modified + core.flows_removed
    sent += core.meters_added + core.meters_modified + core.meters_removed
    return Timing(what, flows, sent, core.seconds)


def _settled() -> bool:
    (core,) = json.loads(_ask("GET", "/v1/topology")[1])["switches"]
    return bool(core["settled"])


def _wait(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise PartFailed("controller", f"not ready after {PATIENCE_SECONDS:g} s")


def _ask(method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=120)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _bridge() -> None:
    command = ["ovs-vsctl", "--", "add-br", "core", "--", "set", "bridge", "core"]
    command += ["datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure"]
    command += ["other-config:datapath-id=0000000000000001", "--", "set-controller", "core"]
    subprocess.run([*command, f"tcp:127.0.0.1:{CONTROLLER_PORT}"], check=True)


if __name__ == "__main__":
    settle_in()
    start_open_vswitch()
    print(json.dumps([astuple(timing) for timing in time_rules(RUN, _bridge)]))
