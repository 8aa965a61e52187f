"""One run, on whatever stage: parties come in, the idle network is probed, traffic, timeline, end.

The stage says where programs run and how its parts are reached; files in the run's folder are the
cues: ``calibrate``, ``go`` (which holds the time to begin at), ``stop``.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from firedex.service_access import ServiceAccess, ServiceAccessError
from firedex.wire import Configuration, from_json, to_json
from firedex.wire.incident import IncidentOpening, UtilityProfile
from firedex.wire.service_api import ConfigurationRecord
from firedex.wire.timeline import Join, Leave, Surge
from firedex_emulation.errors import PartFailed
from firedex_emulation.observation import Action, InForce, Observation, SentEvent, Visit
from firedex_emulation.stage import PATIENCE_SECONDS, Performance, Stage
from firedex_emulation.stall_meter import StallMeter
from firedex_emulation.timeline_actions import carried_out

__all__ = ["conduct"]

GRACE_SECONDS = 2.0
LEAD_SECONDS = 0.5
QUIET_SECONDS = 1.0
"""Nothing has changed for so long: everybody knows the configuration."""
MOST_CONFIGURATIONS = 500


def conduct(
    stage: Stage, performance: Performance, report: Callable[[str], None] = lambda _: None
) -> Observation:
    """Run it from the first party's registration to the last record."""
    scenario, run = performance.scenario, stage.run_folder
    (run / "scenario.json").write_text(to_json(scenario))
    for phase in scenario.phases:
        stage.service.ask(
            "PUT", f"/v1/profiles/{phase.phase}", to_json(UtilityProfile(rules=phase.rules))
        )
    if scenario.phases:
        opening = IncidentOpening(title=scenario.name, phase=scenario.phases[0].phase)
        stage.service.ask("POST", "/v1/incident", to_json(opening))
    report("parties come in")
    publishers = [publisher.id for publisher in scenario.publishers]
    subscribers = [subscriber.id for subscriber in scenario.subscribers]
    _start(stage, performance, "publisher_program", publishers)
    _start(stage, performance, "subscriber_program", subscribers)
    _until_quiet(stage)
    report("probing the idle network")
    (run / "calibrate").touch()
    for name in publishers:
        stage.wait_for_file(name, "calibrated")
    began = time.time() + LEAD_SECONDS
    notes = stage.notes()
    _write_whole(run / "go", str(began))
    report(f"{performance.seconds:g} s of traffic")
    with StallMeter() as stalls:
        actions = _follow_timeline(stage, performance, began)
        sent = _sent(stage, publishers, began + performance.seconds + PATIENCE_SECONDS)
    ended = time.time()
    stage.wait_for_parts()
    time.sleep(GRACE_SECONDS)
    report("gathering records")
    link_facts = stage.link_facts()
    (run / "stop").touch()
    visits = {name: _visits(stage, name) for name in subscribers}
    return Observation(
        began_at=began,
        ended_at=ended,
        sent=sent,
        visits=visits,
        configurations=_configurations(stage.service),
        actions=actions,
        stalled_seconds=stalls.stalled_seconds,
        link_facts=link_facts,
    ).with_notes((*notes, *stage.notes()))


def _start(stage: Stage, performance: Performance, program: str, names: Sequence[str]) -> None:
    """All at once, since each takes a second to start; then wait for each."""
    for name in names:
        orders = stage.orders(performance, name).to_argument()
        module = f"firedex_emulation.{program}"
        stage.start_party(name, [sys.executable, "-W", "ignore", "-m", module, orders])
    for name in names:
        stage.wait_for_file(name, "ready", PATIENCE_SECONDS + len(names))


def _until_quiet(stage: Stage) -> None:
    """Until the configuration in force has not changed for a while."""
    until = time.monotonic() + PATIENCE_SECONDS
    version, since = 0, time.monotonic()
    while time.monotonic() < until:
        present, _ = stage.service.configuration()
        now = present.version if present else 0
        if now != version:
            version, since = now, time.monotonic()
        elif time.monotonic() - since > QUIET_SECONDS:
            return
        time.sleep(0.1)
    raise PartFailed("service", "its configuration does not come to rest")


def _follow_timeline(stage: Stage, performance: Performance, began: float) -> tuple[Action, ...]:
    """Do what the timeline says when it says so; parties see to their own part of it."""
    own = (Join, Leave, Surge)
    events = [event for event in performance.scenario.timeline if not isinstance(event, own)]
    done = []
    for event in sorted(events, key=lambda event: event.at_seconds):
        if event.at_seconds > performance.seconds:
            break
        time.sleep(max(began + event.at_seconds - time.time(), 0.0))
        done.append(carried_out(event, stage))
    return tuple(done)


def _sent(stage: Stage, publishers: Sequence[str], until: float) -> tuple[SentEvent, ...]:
    sent: list[SentEvent] = []
    for name in publishers:
        path = stage.wait_for_file(name, "sent.json", max(until - time.time(), 1.0))
        sent += [(event, topic, at) for event, topic, at in json.loads(path.read_text())]
    return tuple(sorted(sent, key=lambda each: each[2]))


def _visits(stage: Stage, name: str) -> tuple[Visit, ...]:
    plain = json.loads(stage.wait_for_file(name, "visits.json").read_text())
    return tuple(Visit.from_plain(visit) for visit in plain)


def _configurations(service: ServiceAccess) -> tuple[InForce, ...]:
    """Every configuration that was in force, in order."""
    answer = service.ask("GET", f"/v1/configurations?limit={MOST_CONFIGURATIONS}")
    found = []
    for plain in json.loads(answer.body):
        record = from_json(ConfigurationRecord, json.dumps(plain), tolerant=True)
        if record.in_force_at is None:
            continue
        try:
            whole = service.ask("GET", f"/v1/configurations/{record.version}")
        except ServiceAccessError:
            continue  # so many since that it is no longer kept
        found.append(
            InForce(
                configuration=from_json(Configuration, whole.body.decode(), tolerant=True),
                since=record.in_force_at.timestamp(),
                through_change=record.through_change,
            )
        )
    return tuple(sorted(found, key=lambda each: each.since))


def _write_whole(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.rename(path)
