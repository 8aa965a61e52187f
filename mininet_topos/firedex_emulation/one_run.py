"""Inside the sandbox: one way of running a scenario, from an empty machine to a measurement."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from firedex.scenario_file import read_scenario
from firedex.wire import Configuration, Scenario, from_json, to_json
from firedex_emulation.emulated_network import build_network
from firedex_emulation.errors import EmulationError
from firedex_emulation.measurement import measure_way
from firedex_emulation.network_plan import EDGE_ADDRESS
from firedex_emulation.sandbox import RUN, settle_in
from firedex_emulation.site_processes import CONTROLLER_PORT, SERVICE_URL, SiteProcesses
from firedex_emulation.stall_meter import StallMeter
from firedex_emulation.switch_host import start_open_vswitch

__all__ = ["WAYS", "as_run"]

WAYS = ("none", "firedex")
GRACE_SECONDS = 2.0
SETTLE_SECONDS = 0.5


def as_run(scenario: Scenario, way: str) -> Scenario:
    """The scenario in one of its ways: ``none`` has one flow, one class and no drop rates."""
    if way == "none":
        planning = replace(
            scenario.planning,
            flows_per_subscriber=1,
            priorities=1,
            priority_policy="none",
            drop_policy="none",
        )
        return replace(scenario, planning=planning)
    return scenario


def main(
    source: str, way: str, framework: str, seconds: str, seed: str, out: str, topology: str
) -> None:
    """Run, and print what was measured as JSON; without ``out`` the records go with the sandbox."""
    settle_in()
    records = Path(out) if out else RUN / "records"
    records.mkdir(parents=True, exist_ok=True)
    scenario = as_run(read_scenario(source), way)
    whole, site = RUN / "scenario.json", RUN / "site.json"
    whole.write_text(to_json(scenario))
    site.write_text(to_json(replace(scenario, publishers=(), subscribers=(), topics=())))
    start_open_vswitch()
    network = build_network(scenario, controller_port=CONTROLLER_PORT, topology=topology)
    processes = SiteProcesses(network)
    processes.start_controller(framework)
    processes.start_edge(site, bounded=way != "none")
    for name, host in network.publishers.items():
        program = [sys.executable, "-m", "firedex_emulation.publisher_program", str(whole), name]
        program += [SERVICE_URL, EDGE_ADDRESS, seconds, seed, str(RUN)]
        processes.start(name, program, host.node)
        processes.wait_for_file(name, "ready")
    for name, host in network.subscribers.items():
        program = [sys.executable, "-m", "firedex_emulation.subscriber_program", str(whole), name]
        program += [host.address, SERVICE_URL, str(RUN)]
        program += [str(records / f"{way}-{name}.parquet"), way]
        processes.start(name, program, host.node)
        processes.wait_for_file(name, "ready")
    time.sleep(1.0)  # the gateway asks for the configuration four times a second
    (RUN / "calibrate").touch()
    for name in network.publishers:
        processes.wait_for_file(name, "calibrated")
    time.sleep(SETTLE_SECONDS)
    notes = processes.switch_notes()
    (RUN / "go").touch()
    sent = []
    with StallMeter() as stalls:
        for name in network.publishers:
            done = processes.wait_for_file(name, "sent.json", seconds=float(seconds) + 30)
            sent += json.loads(done.read_text())
    notes += processes.switch_notes()
    time.sleep(GRACE_SECONDS)
    (RUN / "stop").touch()
    for name in network.subscribers:
        processes.wait_for_file(name, "done")
    configuration = from_json(Configuration, processes.configuration())
    events = [(topic, published_at) for _, topic, published_at in sent]
    measured = measure_way(scenario, way, configuration, events, records)
    measured = replace(
        measured,
        stalled_seconds=stalls.stalled_seconds,
        notes=tuple(dict.fromkeys((*measured.notes, *notes))),
    )
    print(json.dumps(measured.as_plain()), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except EmulationError as error:
        sys.exit(f"firedex: {error}")
