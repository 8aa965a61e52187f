"""The steps of one experiment: register, probe the idle network, run the traffic, collect records.

It is the same on every testbed. Files in the run folder signal the programs on the hosts:
``calibrate`` (start probing), ``go`` (start the traffic at the time in it) and ``stop``.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from firedex.system.files import write_atomically
from firedex.transport.http import HttpClient, HttpError
from firedex.transport.service_client import configuration_path, parse_configuration
from firedex.wire import Configuration, from_json, to_json
from firedex.wire.incident import NewIncident, UtilityProfile
from firedex.wire.scenario import Join, Leave, Surge
from firedex.wire.service_api import ConfigurationRecord
from firedex_emulation.errors import PartFailed
from firedex_emulation.measurement.observation import (
    Action,
    ActiveConfiguration,
    Observation,
    SentEvent,
    SubscriberSession,
)
from firedex_emulation.testbed.interface import TIMEOUT_SECONDS, ExperimentSettings, Testbed
from firedex_emulation.testbed.timeline import perform_event

__all__ = ["StallMeter", "run_experiment"]

GRACE_SECONDS = 2.0
LEAD_SECONDS = 0.5
QUIET_SECONDS = 1.0
"""Without a new configuration for this long, all hosts have the active one."""
MAX_CONFIGURATIONS = 500


def run_experiment(
    testbed: Testbed, settings: ExperimentSettings, report: Callable[[str], None] = lambda _: None
) -> Observation:
    """Run one experiment on a testbed, from the first registration to the last record."""
    scenario, run = settings.scenario, testbed.run_folder
    (run / "scenario.json").write_text(to_json(scenario))
    for phase in scenario.phases:
        testbed.service.request(
            "PUT", f"/v1/profiles/{phase.phase}", to_json(UtilityProfile(rules=phase.rules))
        )
    if scenario.phases:
        opening = NewIncident(title=scenario.name, phase=scenario.phases[0].phase)
        testbed.service.request("POST", "/v1/incident", to_json(opening))
    report("registering publishers and subscribers")
    publishers = [publisher.id for publisher in scenario.publishers]
    subscribers = [subscriber.id for subscriber in scenario.subscribers]
    _start_programs(testbed, settings, "publisher_program", publishers)
    _start_programs(testbed, settings, "subscriber_program", subscribers)
    _wait_for_stable_configuration(testbed)
    report("probing the idle network")
    (run / "calibrate").touch()
    for name in publishers:
        testbed.wait_for_file(name, "calibrated")
    began = time.time() + LEAD_SECONDS
    notes = testbed.notes()
    write_atomically(run / "go", str(began))
    report(f"{settings.seconds:g} s of traffic")
    with StallMeter() as stalls:
        actions = _follow_timeline(testbed, settings, began)
        sent = _sent_events(testbed, publishers, began + settings.seconds + TIMEOUT_SECONDS)
    ended = time.time()
    testbed.wait_for_parts()
    time.sleep(GRACE_SECONDS)
    report("collecting records")
    link_facts = testbed.link_facts()
    (run / "stop").touch()
    sessions = {name: _read_sessions(testbed, name) for name in subscribers}
    return Observation(
        began_at=began,
        ended_at=ended,
        sent=sent,
        sessions=sessions,
        configurations=_active_configurations(testbed.service),
        actions=actions,
        stalled_seconds=stalls.stalled_seconds,
        link_facts=link_facts,
    ).with_notes((*notes, *testbed.notes()))


def _start_programs(
    testbed: Testbed, settings: ExperimentSettings, program: str, names: Sequence[str]
) -> None:
    """Start all programs at once, because each takes a second to start; then wait for each."""
    for name in names:
        argument = testbed.host_settings(settings, name).to_argument()
        module = f"firedex_emulation.testbed.{program}"
        testbed.start_program(name, [sys.executable, "-W", "ignore", "-m", module, argument])
    for name in names:
        testbed.wait_for_file(name, "ready", TIMEOUT_SECONDS + len(names))


def _wait_for_stable_configuration(testbed: Testbed) -> None:
    """Wait until the active configuration has not changed for ``QUIET_SECONDS``."""
    until = time.monotonic() + TIMEOUT_SECONDS
    version, since = 0, time.monotonic()
    while time.monotonic() < until:
        path = configuration_path()
        response = testbed.service.request("GET", path)
        now = parse_configuration(response, f"GET {path}").version
        if now != version:
            version, since = now, time.monotonic()
        elif time.monotonic() - since > QUIET_SECONDS:
            return
        time.sleep(0.1)
    raise PartFailed("service", f"the configuration still changes after {TIMEOUT_SECONDS:g} s")


def _follow_timeline(
    testbed: Testbed, settings: ExperimentSettings, began: float
) -> tuple[Action, ...]:
    """Perform the timeline events of the site; hosts perform joins, leaves and surges."""
    host_events = (Join, Leave, Surge)
    events = [event for event in settings.scenario.timeline if not isinstance(event, host_events)]
    done = []
    for event in sorted(events, key=lambda event: event.at_seconds):
        if event.at_seconds > settings.seconds:
            break
        time.sleep(max(began + event.at_seconds - time.time(), 0.0))
        done.append(perform_event(event, testbed))
    return tuple(done)


def _sent_events(
    testbed: Testbed, publishers: Sequence[str], until: float
) -> tuple[SentEvent, ...]:
    sent: list[SentEvent] = []
    for name in publishers:
        path = testbed.wait_for_file(name, "sent.json", max(until - time.time(), 1.0))
        sent += [(event, topic, at) for event, topic, at in json.loads(path.read_text())]
    return tuple(sorted(sent, key=lambda each: each[2]))


def _read_sessions(testbed: Testbed, name: str) -> tuple[SubscriberSession, ...]:
    plain = json.loads(testbed.wait_for_file(name, "sessions.json").read_text())
    return tuple(SubscriberSession.from_plain(session) for session in plain)


def _active_configurations(service: HttpClient) -> tuple[ActiveConfiguration, ...]:
    """Return every configuration that was active, in order."""
    answer = service.request("GET", f"/v1/configurations?limit={MAX_CONFIGURATIONS}")
    found = []
    for plain in json.loads(answer.body):
        record = from_json(ConfigurationRecord, json.dumps(plain), tolerant=True)
        if record.activated_at is None:
            continue
        try:
            full = service.request("GET", f"/v1/configurations/{record.version}")
        except HttpError:
            continue  # the service keeps a limited number of configurations
        found.append(
            ActiveConfiguration(
                configuration=from_json(Configuration, full.body.decode(), tolerant=True),
                since=record.activated_at.timestamp(),
                through_change=record.through_change,
            )
        )
    return tuple(sorted(found, key=lambda each: each.since))


SLEEP_SECONDS = 0.005
STALL_SECONDS = 0.010
"""Shorter delays are normal scheduling."""


class StallMeter:
    """Measures for how long the machine did not run this process; a context manager.

    A delay measured while the machine stalled says nothing about the network.
    """

    def __init__(self) -> None:
        self.stalled_seconds = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> "StallMeter":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _measure(self) -> None:
        while not self._stop.is_set():
            start = time.monotonic()
            time.sleep(SLEEP_SECONDS)
            late = time.monotonic() - start - SLEEP_SECONDS
            if late > STALL_SECONDS:
                self.stalled_seconds += late
