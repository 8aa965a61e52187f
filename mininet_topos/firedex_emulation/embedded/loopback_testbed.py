"""The testbed without switches: all parts and hosts' programs as processes on loopback."""

import errno
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from firedex.system.processes import (
    ChildProcess,
    ProgramMissing,
    accepts_connections,
    find_program,
    firedex_command,
)
from firedex.transport.http import HttpClient, HttpError, HttpTarget
from firedex.wire import Scenario, to_json
from firedex_emulation.embedded.link_program import LinkSettings
from firedex_emulation.embedded.priority_link import port_settings
from firedex_emulation.errors import (
    EmulationError,
    PartFailed,
    RequirementsMissing,
    UnsupportedTopology,
)
from firedex_emulation.measurement.comparison import ModeMeasurement, measure_mode
from firedex_emulation.testbed.emulation_settings import EMBEDDED_LABEL, EmulationSettings
from firedex_emulation.testbed.experiment import run_experiment
from firedex_emulation.testbed.interface import (
    TIMEOUT_SECONDS,
    ExperimentSettings,
    HostSettings,
)
from firedex_emulation.testbed.modes import MODE_TITLES

__all__ = ["MAX_SUBSCRIBERS", "LoopbackTestbed", "RunAddresses", "check_embedded", "run_embedded"]

PACKAGE = "firedex_emulation.embedded"
POLL_SECONDS = 0.05
UNLIMITED_BUFFER_OPTIONS = ("--buffer-bytes", str(2**30), "--buffer-seconds", "3600")


def check_embedded(scenario: Scenario) -> None:
    """Raise RequirementsMissing or UnsupportedTopology if the embedded mode cannot run."""
    try:
        find_program("setpriv", "util-linux")
    except ProgramMissing as error:
        raise RequirementsMissing(str(error)) from error
    if find_spec("amqtt") is None:
        raise RequirementsMissing("the broker aMQTT is not installed; run: pip install amqtt")
    if len(scenario.subscribers) > MAX_SUBSCRIBERS:
        raise UnsupportedTopology(
            "embedded",
            f"{len(scenario.subscribers)} subscribers; the maximum is {MAX_SUBSCRIBERS}",
        )
    for switch in scenario.network.switches:
        if switch.error_rate:
            raise UnsupportedTopology(
                "embedded",
                f"switch {switch.id!r} has an error rate; emulation does not support that",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Command of a part, and the check that the part is ready."""

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]


class LoopbackTestbed:
    """A site with all parts running; a context manager that stops and removes everything."""

    def __init__(self, scenario: Scenario, *, bounded: bool) -> None:
        self._scenario, self._bounded = scenario, bounded
        self._children: dict[str, ChildProcess] = {}
        self._parts: dict[str, _Part] = {}
        self._skipped: list[str] = []
        self._undo = ExitStack()

    def __enter__(self) -> "LoopbackTestbed":
        try:
            self._set_up()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def _set_up(self) -> None:
        self.run_folder = Path(tempfile.mkdtemp(prefix="firedex-embedded-"))
        self._undo.callback(shutil.rmtree, self.run_folder, ignore_errors=True)
        self._addresses = RunAddresses([each.id for each in self._scenario.subscribers])
        self._undo.callback(self._addresses.close)
        self._undo.callback(self._stop_all)
        parts, link = self._addresses.parts, self._addresses.link
        self._broker = (parts, self._addresses.free_port(parts))
        self._service = (parts, self._addresses.free_port(parts))
        self._gateway = (parts, self._addresses.free_port(parts))
        self._link = (link, self._addresses.free_port(link))
        # Start all parts at once: each takes a second or more, and none waits for another one.
        for part in self._all_parts():
            self._parts[part.name] = part
            self._start_part(part)
        for part in self._parts.values():
            self._wait_until_ready(part)

    def _all_parts(self) -> tuple[_Part, ...]:
        site, full_scenario = self.run_folder / "site.json", self.run_folder / "scenario.json"
        full_scenario.write_text(to_json(self._scenario))
        empty = replace(
            self._scenario, publishers=(), subscribers=(), topics=(), timeline=(), phases=()
        )
        site.write_text(to_json(empty))
        service = f"http://{_host_and_port(self._service)}"
        gateway = [
            f"--listen={_host_and_port(self._gateway)}",
            f"--udp-listen={_host_and_port(self._gateway)}",
        ]
        gateway += [f"--broker={_host_and_port(self._broker)}", f"--service={service}", "--seed=1"]
        settings = LinkSettings(
            scenario=str(full_scenario),
            service=service,
            listen=self._link,
            gateway=self._gateway,
            subscriber_addresses={
                name: (source, self._addresses.visible_addresses[name])
                for name, source in self._addresses.source_addresses.items()
            },
        )
        return (
            _Part(
                name="broker",
                command=_python_command(
                    f"{PACKAGE}.broker_program", self._broker[0], str(self._broker[1])
                ),
                ready=lambda: accepts_connections(*self._broker),
            ),
            _Part(
                name="service",
                command=firedex_command("serve", str(site), "--open")
                + [
                    f"--listen={_host_and_port(self._service)}",
                    f"--gateway={_host_and_port(self._gateway)}",
                ]
                + [f"--state={self.run_folder / 'service.sqlite'}"],
                ready=self._service_is_healthy,
            ),
            _Part(
                name="gateway",
                command=_python_command(
                    "firedex.gateway",
                    *gateway,
                    *(() if self._bounded else UNLIMITED_BUFFER_OPTIONS),
                ),
                ready=lambda: accepts_connections(*self._gateway),
            ),
            _Part(
                name="link",
                command=_python_command(f"{PACKAGE}.link_program", settings.to_argument()),
                ready=lambda: accepts_connections(*self._link),
            ),
        )

    # -- the interface of a testbed ----------------------------------------------------------------

    @cached_property
    def service(self) -> HttpClient:
        """Client of the configuration service."""
        target = HttpTarget(url=f"http://{_host_and_port(self._service)}")
        return self._undo.enter_context(HttpClient(target))

    def host_settings(self, experiment: ExperimentSettings, name: str) -> HostSettings:
        """Return the settings of the program of publisher or subscriber ``name``."""
        publishing = [p.id for p in experiment.scenario.publishers if p.publications]
        return HostSettings(
            scenario=str(self.run_folder / "scenario.json"),
            name=name,
            run_folder=str(self.run_folder),
            service=f"http://{_host_and_port(self._service)}",
            broker=self._broker[0],
            broker_port=self._broker[1],
            mqtt_version="3.1.1",  # the only version that aMQTT supports
            mode=experiment.mode,
            seconds=experiment.seconds,
            seed=experiment.seed,
            records=str(experiment.records / f"{experiment.mode}-{name}.parquet"),
            address=self._addresses.visible_addresses.get(name, self._addresses.parts),
            source_address=self._addresses.source_addresses.get(name),
            gateway=_host_and_port(self._link),
            probes=publishing[:1] == [name],
        )

    def start_program(self, name: str, command: Sequence[str]) -> None:
        """Start the program of publisher or subscriber ``name``."""
        self._children[f"host {name}"] = ChildProcess(
            command, self.run_folder / f"{name}.program.log"
        )

    def wait_for_file(self, name: str, suffix: str, seconds: float = TIMEOUT_SECONDS) -> Path:
        """Wait for the file ``name.suffix``; raise PartFailed if a process fails."""
        path = self.run_folder / f"{name}.{suffix}"
        until = time.monotonic() + seconds
        while not path.exists():
            self._check_processes()
            if time.monotonic() > until:
                raise PartFailed(
                    name, f"no file {path.name} after {seconds:.0f} s{self._end_of_log(name)}"
                )
            time.sleep(POLL_SECONDS)
        return path

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Raise EmulationError: the links between switches are not emulated here."""
        self._skip_event(f"link {one}–{other} {'up' if up else 'down'} needs real switches")

    def kill(self, part: str, down_seconds: float) -> None:
        """Kill a part, start it again after ``down_seconds``, and wait until it is ready."""
        if part not in self._parts:
            self._skip_event(f"kill of {part}, which runs only with real switches")
        self._children.pop(part).kill()
        time.sleep(down_seconds)
        self._start_part(self._parts[part])
        self._wait_until_ready(self._parts[part])

    def wait_for_parts(self) -> None:
        """Return at once: ``kill`` has already waited for the part."""

    def link_facts(self) -> Mapping[str, Sequence[str]]:
        """Return the settings of the ports of the link."""
        facts: dict[str, list[str]] = {}
        for (switch, towards), port in port_settings(self._scenario).items():
            facts.setdefault(switch, []).append(
                f"to {towards or 'subscribers'}: {port.bits_per_second:g} bit/s, "
                f"{port.classes} classes, {port.buffer.packets} packets ({port.buffer.kind})"
            )
        return facts

    def notes(self) -> tuple[str, ...]:
        """Return the notice that no switch is used, and the skipped timeline events."""
        return (EMBEDDED_LABEL, *self._skipped)

    def _skip_event(self, event: str) -> NoReturn:
        note = f"timeline event skipped: {event}"
        self._skipped.append(note)
        raise EmulationError(note)

    # -- processes ---------------------------------------------------------------------------------

    def _start_part(self, part: _Part) -> None:
        log = self.run_folder / f"{part.name}.log"
        self._children[part.name] = ChildProcess(part.command, log)

    def _wait_until_ready(self, part: _Part) -> None:
        until = time.monotonic() + TIMEOUT_SECONDS
        while not part.ready():
            self._check_processes()
            if time.monotonic() > until:
                log = self._children[part.name].end_of_log()
                raise PartFailed(part.name, f"not ready after {TIMEOUT_SECONDS:.0f} s\n{log}")
            time.sleep(POLL_SECONDS)

    def _service_is_healthy(self) -> bool:
        try:
            self.service.request("GET", "/v1/health", timeout_seconds=2.0)
        except HttpError:
            return False
        return True

    def _check_processes(self) -> None:
        for name, child in self._children.items():
            if child.exit_code() not in (None, 0):
                raise PartFailed(name, f"exit code {child.exit_code()}\n{child.end_of_log()}")

    def _end_of_log(self, name: str) -> str:
        child = self._children.get(f"host {name}")
        return "" if child is None else f"\n{child.end_of_log()}"

    def _stop_all(self) -> None:
        """Stop the hosts' programs at once, then the parts in reverse order."""
        for name, child in self._children.items():
            if name not in self._parts:
                child.terminate()
        for child in reversed(self._children.values()):
            child.stop()


def _host_and_port(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _python_command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", module, *arguments]


def run_embedded(
    settings: EmulationSettings, report: Callable[[str], None] = lambda _: None
) -> list[ModeMeasurement]:
    """Run the scenario in each mode and measure it.

    Observations and delivery records stay in ``settings.folder`` if it is given.
    """
    check_embedded(settings.scenario)
    if settings.folder is not None:
        return _run_modes(settings.folder.resolve(), settings, report)
    with tempfile.TemporaryDirectory(prefix="firedex-emulation-") as folder:
        return _run_modes(Path(folder), settings, report)


def _run_modes(
    folder: Path, settings: EmulationSettings, report: Callable[[str], None]
) -> list[ModeMeasurement]:
    measurements = []
    for number, mode in enumerate(settings.modes, 1):
        scenario = settings.scenario_for_mode(mode)
        title = f"{number}/{len(settings.modes)} {MODE_TITLES[mode]}, embedded"

        def report_progress(message: str, title: str = title) -> None:
            report(f"{title}: {message}")

        report_progress("starting the parts")
        experiment = ExperimentSettings(
            scenario=scenario,
            mode=mode,
            seconds=settings.seconds,
            seed=settings.seed,
            records=folder,
        )
        with LoopbackTestbed(scenario, bounded=mode != "none") as testbed:
            observation = run_experiment(testbed, experiment, report_progress).with_notes(
                settings.skipped_events()
            )
        (folder / f"{mode}-observation.json").write_text(observation.to_json())
        report_progress("measuring")
        measurements.append(measure_mode(scenario, mode, observation, folder))
    return measurements


MAX_SUBSCRIBERS = 250
GUARD_PORT = 19_999
RUNS = 256


class RunAddresses:
    """The loopback addresses of one run, so that several runs may be active at once.

    They are reserved by a socket with a fixed port, which no other run can bind.
    """

    def __init__(self, subscribers: Sequence[str]) -> None:
        self._guard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        run = self._reserve()
        self.parts, self.link = f"127.1.{run}.253", f"127.1.{run}.254"
        self.source_addresses = {name: f"127.1.{run}.{k}" for k, name in enumerate(subscribers, 1)}
        self.visible_addresses = {name: f"127.2.{run}.{k}" for k, name in enumerate(subscribers, 1)}

    def _reserve(self) -> int:
        for run in range(RUNS):
            try:
                self._guard.bind((f"127.1.{run}.252", GUARD_PORT))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                self._guard.close()
                raise RequirementsMissing(
                    f"an embedded run needs loopback addresses such as 127.1.0.1 ({error})"
                ) from error
            else:
                return run
        self._guard.close()
        raise RequirementsMissing(f"{RUNS} embedded runs are active; wait for one to end")

    def free_port(self, address: str) -> int:
        """Return a port of ``address`` that is free for TCP and UDP."""
        with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            tcp.bind((address, 0))
            port: int = tcp.getsockname()[1]
            udp.bind((address, port))
            return port

    def close(self) -> None:
        """Release the addresses."""
        self._guard.close()
