"""Failures of controller, switch daemon, control channel and queues under traffic."""

import json
import sys
import time
from typing import Any

import numpy as np

from tests.on_switches.programs.switch_lab import (
    CONTROLLER_PORT,
    TRUNK,
    Lab,
    StreamResult,
    run,
    until,
)
from tests.support.desired_examples import flow_rule, network, shaped_port

PACKETS_PER_SECOND = 200.0
OUTAGE_SECONDS = 2.0
FIRST_PORT = 20_000


def main(framework: str) -> None:
    lab = Lab(framework)
    lab.start_parts()
    flows = [flow_rule(flow=number, priority=number) for number in range(8)]
    lab.put(network(*flows, version=1, ports=(shaped_port(8),)))
    time.sleep(1.0)  # wait for the last address resolutions
    print(
        json.dumps(
            {
                "controller": controller_killed(lab),
                "daemon": daemon_killed(lab),
                "channel": channel_cut(lab),
                "queues": queues_lost(lab),
            }
        )
    )


def steady_streams(seconds: float) -> Any:
    count = int(seconds * PACKETS_PER_SECOND)
    at = np.arange(count) / PACKETS_PER_SECOND
    stream = np.arange(count) % 8
    return at, stream, np.full(count, 200), FIRST_PORT + 2 * stream


def seconds_until_restored(
    lab: Lab, flows: list[str], meters: list[str], queues: list[str]
) -> float:
    """Return the time from the restored channel until flows, meters and queues are restored."""
    until(lab.channel, "the channel")
    before = {*flows, *meters, *queues}
    difference = set[str]()

    def is_restored() -> bool:
        difference.clear()
        difference.update(before ^ {*lab.flows(), *lab.meters(), *lab.queues()})
        return lab.settled() and not difference

    try:
        return until(is_restored, "the state is restored")
    except RuntimeError as error:
        raise RuntimeError(f"{error}\ndifference: {difference}") from error


def count_lost(seen: StreamResult) -> int:
    return int(seen.sent.sum() - len(seen.stream))


def controller_killed(lab: Lab) -> Any:
    before = lab.flows(), lab.meters(), lab.queues()
    with lab.traffic(*steady_streams(OUTAGE_SECONDS + 4)) as receive_all:
        lab.kill("controller")
        time.sleep(OUTAGE_SECONDS)
        lab.start_controller()
        seconds = seconds_until_restored(lab, *before)
        return {"lost": count_lost(receive_all()), "back_seconds": seconds}


def daemon_killed(lab: Lab) -> Any:
    before = lab.flows(), lab.meters(), lab.queues()
    lab.restart_switch_daemon()
    seconds = seconds_until_restored(lab, *before)
    with lab.traffic(*steady_streams(1)) as receive_all:
        return {"lost_after": count_lost(receive_all()), "back_seconds": seconds}


def channel_cut(lab: Lab) -> Any:
    """Delete a rule and add an outdated one while the control channel is closed."""
    before = lab.flows(), lab.meters(), lab.queues()
    with lab.traffic(*steady_streams(OUTAGE_SECONDS + 3)) as receive_all:
        lab.disconnect()
        until(lambda: not lab.channel(), "the channel is cut")
        until(lambda: not lab.settled(), "the controller has noticed")
        status, answer = lab.ask("PUT", "/v1/network", json.dumps({"configuration_version": 9,
            "switches": [{"switch": "core", "flows": []}]}))  # fmt: skip
        time.sleep(OUTAGE_SECONDS)
        meanwhile = count_lost(receive_all())
    tamper = ["ovs-ofctl", "-O", "OpenFlow13"]
    run(*tamper, "--strict", "del-flows", "core", "table=1,priority=100,ip")
    run(*tamper, "add-flow", "core",
        "cookie=0xf17e000000000063,table=1,priority=200,udp,tp_dst=7,actions=drop")  # fmt: skip
    run(*tamper, "add-meter", "core", "meter=99,pktps,burst,band=type=drop,rate=5,burst_size=5")
    run("ovs-vsctl", "set-controller", "core", f"tcp:127.0.0.1:{CONTROLLER_PORT}", "--",
        "set", "controller", "core", "max_backoff=1000")  # fmt: skip
    seconds = seconds_until_restored(lab, *before)
    return {"lost": meanwhile, "put_meanwhile": status, "said": answer, "back_seconds": seconds}


def queues_lost(lab: Lab) -> Any:
    """Delete the filters and leaf classes; then again while the agent is killed."""
    before = lab.queues()
    run("tc", "filter", "del", "dev", TRUNK, "parent", "1:")
    alive = until(lambda: lab.queues() == before, "the filters are back")
    lab.kill("agent")
    run("tc", "qdisc", "del", "dev", TRUNK, "root")
    lab.start_agent()
    restarted = until(lambda: lab.queues() == before, "the queues are back")
    return {"back_seconds": alive, "back_after_restart_seconds": restarted}


if __name__ == "__main__":
    main(*sys.argv[1:])
