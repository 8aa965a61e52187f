"""Any sequence of changes, phases, failed pushes and restarts ends where a simple reference ends.

The reference is dictionaries and the pure planning function. The service under test is the real
one: Flask, the ledger, a real database, the planner, and a controller over HTTP.
"""

import itertools
import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from fake_controller import FakeController, Mood, running_controller
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from service_site import GATEWAY, publisher, site, subscriber

from firedex.service.controller_client import ControllerClient, ControllerLink
from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.database import Database
from firedex.service.errors import PushFailed
from firedex.service.planner import Planner, SiteSettings
from firedex.service.planning_scenario import Basis, planning_scenario
from firedex.service.site_plan import plan_site
from firedex.service.site_state import DeclaredTopic, SiteState
from firedex.service.web import create_app
from firedex.wire import (
    Configuration,
    Flow,
    PublisherRegistration,
    SubscriberRegistration,
    Topic,
    from_json,
    from_plain,
)
from firedex.wire.incident import Budgets, Incident, UtilityProfile

SITE = site(bandwidth_bits_per_second=2e5)
SETTINGS = SiteSettings(site=SITE, gateway=GATEWAY)
TOPICS = ("smoke/1", "smoke/2", "camera/1")
FILTERS = (*TOPICS, "smoke/#", "+/1", "attic/1")
names = st.sampled_from(["ann", "bob", "cleo"])
sources = st.sampled_from(["p0", "p1"])
phases = st.sampled_from(["size-up", "suppression"])
weights = st.sampled_from([0.0, 0.5, 1.0, 7.0, 1000.0])
wanted = st.dictionaries(st.sampled_from(FILTERS), weights, max_size=4)
rates = st.dictionaries(st.sampled_from(TOPICS), st.sampled_from([1.0, 20.0, 90.0]), max_size=3)
moods: st.SearchStrategy[Mood] = st.sampled_from(
    ["willing", "willing", "refuses", "away", "hangs up", "takes it and hangs up"]
)


class Reference:
    """What the service should have, kept in the simplest way."""

    def __init__(self) -> None:
        self.publishers: dict[str, dict[str, Any]] = {}
        self.subscribers: dict[str, dict[str, Any]] = {}
        self.topics: dict[str, tuple[dict[str, Any], str]] = {}
        self.budgets: dict[str, Any] = {}
        self.profiles: dict[str, dict[str, Any]] = {}
        self.phase: str | None = None
        self.flows: tuple[Flow, ...] = ()
        self.changes = 0
        self.in_force_changes = 0
        self.unsure = False

    def plan(self) -> tuple[Flow, ...]:
        now = datetime.now(UTC)
        state = SiteState(
            publishers={
                name: from_plain(PublisherRegistration, p) for name, p in self.publishers.items()
            },
            subscribers={
                name: from_plain(SubscriberRegistration, s) for name, s in self.subscribers.items()
            },
            topics={
                name: DeclaredTopic(topic=from_plain(Topic, topic), declared_by=by)
                for name, (topic, by) in self.topics.items()
            },
            budgets=from_plain(Budgets, self.budgets),
            profiles={p: from_plain(UtilityProfile, rules) for p, rules in self.profiles.items()},
            incident=None
            if self.phase is None
            else Incident(title="x", phase=self.phase, opened_at=now, phase_since=now),
        )
        addresses = {name: IPv4Address(s["address"]) for name, s in self.subscribers.items()}
        scenario = planning_scenario(SITE, state, Basis({}))
        return plan_site(scenario, addresses, GATEWAY, self.flows).flows


class ServiceMachine(RuleBasedStateMachine):
    """The service beside the reference."""

    new_state: Callable[[], str]
    controller: FakeController
    controller_url: str

    @initialize()
    def start(self) -> None:
        self.reference = Reference()
        self.state = self.new_state()
        self.controller.mood, self.controller.plain = "willing", None
        self.numbers = itertools.count()
        self.versions = [0]
        self._open()

    def _open(self) -> None:
        self.database = Database(self.state)
        options = ServiceOptions(settings=SETTINGS, open_to_all=True)
        self.service = ConfigurationService(options, self.database)
        client = ControllerClient(ControllerLink(self.controller_url, patience_seconds=5.0))
        self.planner = Planner(SETTINGS, self.database, client, self.service.notice)
        self.planner.restore()
        self.web = create_app(self.service).test_client()

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()

    def _ask(
        self, method: str, path: str, body: Any = None, *, ok: bool = True, same: bool = False
    ) -> Any:
        answer = self.web.open(path, method=method, json=body)
        if ok and same:
            assert answer.status_code == 202, (path, answer.text)
            assert 1 <= answer.json["change"] <= self.reference.changes
        elif ok:
            assert answer.status_code == 202, (path, answer.text)
            self.reference.changes += 1
            assert answer.json == {"change": self.reference.changes}
        else:
            assert answer.status_code in (404, 409), (path, answer.text)
        return answer

    # -- changes -------------------------------------------------------------------------------

    @rule(name=names, filters=wanted, role=st.sampled_from(["crew", "chief"]))
    def register_subscriber(self, name: str, filters: dict[str, float], role: str) -> None:
        body = subscriber(name, filters, role=role, address=f"10.0.0.{len(name)}")
        same = self.reference.subscribers.get(name) == body
        self._ask("PUT", f"/v1/subscribers/{name}", body, same=same)
        self.reference.subscribers[name] = body

    @rule(name=sources, declared=rates)
    def register_publisher(self, name: str, declared: dict[str, float]) -> None:
        body = publisher(name, declared, event_bytes=100 + 50 * len(declared))
        reference = self.reference
        declarers = {
            t["name"]: reference.topics.get(t["name"], (t, name))[1] for t in body["topics"]
        }
        gone = set(declarers.values()) - reference.publishers.keys() - {name}
        same = reference.publishers.get(name) == body and not gone
        self._ask("PUT", f"/v1/publishers/{name}", body, same=same)
        reference.publishers[name] = body
        for topic in body["topics"]:
            if declarers[topic["name"]] in {name, *gone}:
                reference.topics[topic["name"]] = (topic, name)

    @rule(name=names)
    def remove_subscriber(self, name: str) -> None:
        there = self.reference.subscribers.pop(name, None) is not None
        self._ask("DELETE", f"/v1/subscribers/{name}", ok=there)

    @rule(name=sources)
    def remove_publisher(self, name: str) -> None:
        there = self.reference.publishers.pop(name, None) is not None
        self._ask("DELETE", f"/v1/publishers/{name}", ok=there)

    @rule(name=names, filters=wanted)
    def change_utilities(self, name: str, filters: dict[str, float]) -> None:
        added = subscriber(name, filters)["subscriber"]["subscriptions"]
        known = self.reference.subscribers.get(name)
        path = f"/v1/subscribers/{name}/subscriptions"
        changed = None
        if known is not None:
            all_of_them = {s["filter"]: s for s in known["subscriber"]["subscriptions"]}
            all_of_them |= {s["filter"]: s for s in added}
            changed = json.loads(json.dumps(known))
            changed["subscriber"]["subscriptions"] = list(all_of_them.values())
            self.reference.subscribers[name] = changed
        body = {"subscriptions": added}
        self._ask("POST", path, body, ok=known is not None, same=changed == known)

    @rule(limit=st.sampled_from([None, 1.0, 5.0]), share=st.sampled_from([None, 0.2]))
    def set_budgets(self, limit: float | None, share: float | None) -> None:
        budgets = {"roles": [{"role": "crew", "utility": limit, "reserved_share": share}]}
        self._ask("PUT", "/v1/budgets", budgets)
        self.reference.budgets = budgets

    @rule(phase=phases, factor=st.sampled_from([0.0, 3.0]))
    def set_profile(self, phase: str, factor: float) -> None:
        profile = {"rules": [{"filter": "camera/#", "factor": factor}]}
        self._ask("PUT", f"/v1/profiles/{phase}", profile)
        self.reference.profiles[phase] = profile

    @rule(phase=phases)
    def open_incident(self, phase: str) -> None:
        possible = self.reference.phase is None
        self._ask("POST", "/v1/incident", {"title": "x", "phase": phase}, ok=possible)
        if possible:
            self.reference.phase = phase

    @rule(phase=phases)
    def change_phase(self, phase: str) -> None:
        possible = self.reference.phase is not None
        self._ask("PUT", "/v1/incident/phase", {"phase": phase}, ok=possible)
        if possible:
            self.reference.phase = phase

    @rule()
    def close_incident(self) -> None:
        self._ask("DELETE", "/v1/incident", ok=self.reference.phase is not None)
        self.reference.phase = None

    # -- the network -----------------------------------------------------------------------------

    @rule(mood=moods)
    def plan_and_push(self, mood: Mood) -> None:
        reference = self.reference
        needed = reference.changes > reference.in_force_changes or reference.unsure
        self.controller.mood = mood
        if not needed:
            assert self.planner.step() is False
        elif mood == "willing":
            assert self.planner.step() is True
            reference.flows = reference.plan()
            reference.in_force_changes, reference.unsure = reference.changes, False
        else:
            with pytest.raises(PushFailed):
                self.planner.step()
            reference.unsure = True
        self.controller.mood = "willing"

    @precondition(lambda self: hasattr(self, "database"))
    @rule(gone=st.booleans())
    def restart(self, gone: bool) -> None:
        self.database.close()
        if gone:
            self.controller.plain = None  # the controller lost its memory
        self._open()
        in_force = self.service.version
        self.reference.unsure = self.controller.version != in_force

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "reference"):
            return
        reference = self.reference
        listed = [s["subscriber"]["id"] for s in self.web.get("/v1/subscribers").json]
        assert sorted(listed) == sorted(reference.subscribers)
        answer = self.web.get("/v1/configuration")
        if answer.status_code == 404:
            assert reference.in_force_changes == 0
            return
        configuration = from_json(Configuration, answer.data)
        assert sorted(map(repr, configuration.flows)) == sorted(map(repr, reference.flows))
        assert configuration.version >= self.versions[-1]
        self.versions.append(configuration.version)
        if not reference.unsure:
            self._switches_agree(configuration)

    def _switches_agree(self, configuration: Configuration) -> None:
        network = self.controller.network
        assert network is not None
        assert network.configuration_version == configuration.version
        on_switches = {
            (r.subscriber, r.flow, r.priority, r.endpoints.subscriber_ports)
            for switch in network.switches
            for r in switch.flows
        }
        assert on_switches == {
            (f.subscriber, f.flow, f.priority, f.endpoints.subscriber_ports)
            for f in configuration.flows
            if f.endpoints
        }


def run(new_state: Callable[[], str], examples: int, steps: int) -> None:
    controller = FakeController()
    with running_controller(controller) as url:

        class Machine(ServiceMachine):
            pass

        Machine.new_state = staticmethod(new_state)
        Machine.controller, Machine.controller_url = controller, url
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )


@pytest.mark.parametrize(
    ("examples", "steps"), [(30, 25), pytest.param(400, 40, marks=pytest.mark.long)]
)
def test_on_sqlite(examples: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = (str(Path(folder) / f"{n}.sqlite") for n in itertools.count())
        run(lambda: next(files), examples, steps)


def test_on_postgresql(new_postgres_state: Callable[[], str]) -> None:
    run(new_postgres_state, 8, 20)
