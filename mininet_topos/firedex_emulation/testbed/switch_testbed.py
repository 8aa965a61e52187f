"""The testbed of real switches: Mininet and Open vSwitch in a sandbox, one run for each mode.

``run_on_switches`` runs outside; it starts this module as a program in a sandbox for each mode.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from firedex.transport.http import HttpClient
from firedex.wire import Scenario, from_json, to_json
from firedex_emulation.errors import EmulationError
from firedex_emulation.measurement.comparison import ModeMeasurement, measure_mode
from firedex_emulation.measurement.observation import Observation
from firedex_emulation.testbed.emulated_network import EmulatedNetwork, build_network
from firedex_emulation.testbed.emulation_settings import EmulationSettings
from firedex_emulation.testbed.experiment import run_experiment
from firedex_emulation.testbed.interface import (
    TIMEOUT_SECONDS,
    ExperimentSettings,
    HostSettings,
)
from firedex_emulation.testbed.modes import MODE_TITLES
from firedex_emulation.testbed.run_journal import RunJournal
from firedex_emulation.testbed.sandbox import (
    RUN,
    check_requirements,
    enter_sandbox,
    run_in_sandbox,
    start_open_vswitch,
)
from firedex_emulation.testbed.site_processes import CONTROLLER_PORT, SERVICE_URL, SiteProcesses
from firedex_emulation.topologies.network_plan import EDGE_ADDRESS
from firedex_emulation.topologies.registry import plan_network

__all__ = ["RunSettings", "SwitchTestbed", "run_on_switches"]

SET_UP_SECONDS = 180.0


def run_on_switches(
    settings: EmulationSettings,
    *,
    report: Callable[[str], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> list[ModeMeasurement]:
    """Run the scenario in each mode and measure it.

    Observations and delivery records stay in ``settings.folder`` if it is given. ``report`` is
    called with the progress, ``on_message`` with messages that should stay visible.
    """
    # Plan the network here first: errors in the sandbox are harder to report.
    plan = plan_network(settings.scenario, settings.topology)
    check_requirements()
    measurements = []
    with RunJournal(on_message) as journal:
        folder = settings.folder.resolve() if settings.folder else journal.make_folder()
        for number, mode in enumerate(settings.modes, 1):
            scenario = settings.scenario_for_mode(mode)
            title = f"{number}/{len(settings.modes)} {MODE_TITLES[mode]}, {plan.topology}"
            report(f"{title}: building the network")
            (folder / "scenario.json").write_text(to_json(scenario))
            run = RunSettings(
                mode=mode,
                framework=settings.framework,
                seconds=settings.seconds,
                seed=settings.seed,
                folder=str(folder),
                topology=plan.topology,
            )
            run_in_sandbox(
                "firedex_emulation.testbed.switch_testbed",
                [run.to_argument()],
                timeout_seconds=settings.seconds + SET_UP_SECONDS,
                on_start=journal.add_process,
                on_line=_with_title(title, report),
            )
            report(f"{title}: measuring")
            observation_file = folder / f"{mode}-observation.json"
            observation = Observation.from_json(observation_file.read_text())
            observation = observation.with_notes(settings.skipped_events())
            measurements.append(measure_mode(scenario, mode, observation, folder))
    return measurements


def _with_title(title: str, report: Callable[[str], None]) -> Callable[[str], None]:
    return lambda message: report(f"{title}: {message}")


class SwitchTestbed:
    """A site on an emulated network, with all its parts running."""

    run_folder = RUN

    def __init__(
        self, network: EmulatedNetwork, scenario: Scenario, *, framework: str, bounded: bool
    ) -> None:
        self._network = network
        self._processes = SiteProcesses(network)
        site = RUN / "site.json"
        empty = replace(scenario, publishers=(), subscribers=(), topics=(), timeline=(), phases=())
        site.write_text(to_json(empty))
        self._processes.start_controller(framework)
        self._processes.start_edge(site, bounded=bounded)

    @property
    def service(self) -> HttpClient:
        """Client of the configuration service from the switch host."""
        return self._processes.service

    def host_settings(self, experiment: ExperimentSettings, name: str) -> HostSettings:
        """Return the settings of the program on the host of ``name``."""
        subscribers = self._network.subscribers
        publishing = [p.id for p in experiment.scenario.publishers if p.publications]
        return HostSettings(
            scenario=str(RUN / "scenario.json"),
            name=name,
            run_folder=str(RUN),
            service=SERVICE_URL,
            broker=EDGE_ADDRESS,
            mode=experiment.mode,
            seconds=experiment.seconds,
            seed=experiment.seed,
            records=str(experiment.records / f"{experiment.mode}-{name}.parquet"),
            address=subscribers[name].address if name in subscribers else EDGE_ADDRESS,
            probes=publishing[:1] == [name],
        )

    def start_program(self, name: str, command: Sequence[str]) -> None:
        """Start a program on the host of publisher or subscriber ``name``."""
        hosts = {**self._network.publishers, **self._network.subscribers}
        self._processes.start(name, command, hosts[name].node)

    def wait_for_file(self, name: str, suffix: str, seconds: float = TIMEOUT_SECONDS) -> Path:
        """Wait for the file ``name.suffix``; raise PartFailed if a process fails."""
        return self._processes.wait_for_file(name, suffix, seconds)

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Disconnect the link between two switches, or restore it."""
        self._network.set_link(one, other, up=up)

    def kill(self, part: str, down_seconds: float) -> None:
        """Kill a part and start it again after ``down_seconds``, without waiting for it."""
        self._processes.kill(part, down_seconds)

    def wait_for_parts(self) -> None:
        """Wait until all killed parts run again; raise if one does not."""
        self._processes.wait_for_parts()

    def link_facts(self) -> Mapping[str, Sequence[str]]:
        """Return the HTB classes that ``tc`` shows on the ports to subscribers."""
        return {
            name: _htb_classes(switch.hosts_port)
            for name, switch in self._network.managed.items()
            if switch.hosts_port
        }

    def notes(self) -> tuple[str, ...]:
        """Return the problems of the switches' queues."""
        return self._processes.switch_notes()


def _htb_classes(port: str) -> list[str]:
    listing = subprocess.run(
        ["tc", "class", "show", "dev", port], capture_output=True, text=True, check=False
    )
    return sorted(line for line in listing.stdout.splitlines() if " htb " in line)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of one run in a sandbox; ``folder`` is outside of it and keeps the results."""

    mode: str
    framework: str
    seconds: float
    seed: int
    folder: str
    topology: str

    def to_argument(self) -> str:
        """Return the settings as one command-line argument."""
        return json.dumps(asdict(self))


def main(settings: RunSettings) -> None:
    """Run ``scenario.json`` of the folder; write the observation and the records there."""
    enter_sandbox()
    folder = Path(settings.folder)
    scenario = from_json(Scenario, (folder / "scenario.json").read_text())
    start_open_vswitch()
    network = build_network(scenario, controller_port=CONTROLLER_PORT, topology=settings.topology)
    testbed = SwitchTestbed(
        network, scenario, framework=settings.framework, bounded=settings.mode != "none"
    )
    experiment = ExperimentSettings(
        scenario=scenario,
        mode=settings.mode,
        seconds=settings.seconds,
        seed=settings.seed,
        records=folder,
    )
    observation = run_experiment(testbed, experiment, lambda message: print(message, flush=True))
    (folder / f"{settings.mode}-observation.json").write_text(observation.to_json())


if __name__ == "__main__":
    try:
        main(RunSettings(**json.loads(sys.argv[1])))
    except EmulationError as error:
        sys.exit(f"firedex: {error}")
