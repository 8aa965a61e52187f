"""Any sequence of changes, failed pushes and restarts gives the result of a simple reference.

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
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.errors import PushFailed
from firedex.service.planner.controller_client import ControllerClient
from firedex.service.planner.planner import Planner, SiteSettings
from firedex.service.planner.planning_scenario import planning_scenario
from firedex.service.planner.site_plan import plan_site
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import RateSnapshot
from firedex.service.state.site_state import DeclaredTopic, SiteState
from firedex.service.web.app import create_app
from firedex.transport.http import HttpTarget
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
from tests.support.fake_controller import Behaviour, FakeController, running_controller
from tests.support.service_site import GATEWAY, publisher, site, subscriber

pytestmark = pytest.mark.slow

SITE = site(bandwidth_bits_per_second=2e5)
SETTINGS = SiteSettings(site=SITE, gateway=GATEWAY)
TOPICS = ("smoke/1", "smoke/2", "camera/1")
FILTERS = (*TOPICS, "smoke/#", "+/1", "attic/1")
names = st.sampled_from(["ann", "bob", "cleo"])
sources = st.sampled_from(["p0", "p1"])
phases = st.sampled_from(["size-up", "suppression"])
weights = st.sampled_from([0.0, 0.5, 1.0, 7.0, 1000.0])
filters_with_weights = st.dictionaries(st.sampled_from(FILTERS), weights, max_size=4)
rates = st.dictionaries(st.sampled_from(TOPICS), st.sampled_from([1.0, 20.0, 90.0]), max_size=3)
behaviours: st.SearchStrategy[Behaviour] = st.sampled_from(
    ["accepts", "accepts", "rejects", "switch missing", "disconnects", "accepts and disconnects"]
)


class Reference:
    """The expected state of the service, in plain dictionaries."""

    def __init__(self) -> None:
        self.publishers: dict[str, dict[str, Any]] = {}
        self.subscribers: dict[str, dict[str, Any]] = {}
        self.topics: dict[str, tuple[dict[str, Any], str]] = {}
        self.budgets: dict[str, Any] = {}
        self.profiles: dict[str, dict[str, Any]] = {}
        self.phase: str | None = None
        self.flows: tuple[Flow, ...] = ()
        self.changes = 0
        self.active_changes = 0
        self.must_push = False

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
        scenario = planning_scenario(SITE, state, RateSnapshot({}))
        return plan_site(scenario, addresses, GATEWAY, self.flows).flows


class ServiceMachine(RuleBasedStateMachine):
    """Applies the same changes to the service and to the reference."""

    new_state: Callable[[], str]
    controller: FakeController
    controller_url: str

    @initialize()
    def start(self) -> None:
        self.reference = Reference()
        self.state = self.new_state()
        self.controller.behaviour, self.controller.plain = "accepts", None
        self.numbers = itertools.count()
        self.versions = [0]
        self._open()

    def _open(self) -> None:
        self.database = Database(self.state)
        options = ServiceOptions(settings=SETTINGS, open_to_all=True)
        self.service = ConfigurationService(options, self.database)
        client = ControllerClient(HttpTarget(url=self.controller_url, timeout_seconds=5.0))
        self.planner = Planner(SETTINGS, self.database, client, self.service.handle_notice)
        self.planner.restore()
        self.web = create_app(self.service).test_client()

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()

    def _request(
        self, method: str, path: str, body: Any = None, *, ok: bool = True, same: bool = False
    ) -> Any:
        answer: Any = self.web.open(path, method=method, json=body)
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

    @rule(name=names, filters=filters_with_weights, role=st.sampled_from(["crew", "chief"]))
    def register_subscriber(self, name: str, filters: dict[str, float], role: str) -> None:
        body = subscriber(name, filters, role=role, address=f"10.0.0.{len(name)}")
        same = self.reference.subscribers.get(name) == body
        self._request("PUT", f"/v1/subscribers/{name}", body, same=same)
        self.reference.subscribers[name] = body

    @rule(name=sources, declared=rates)
    def register_publisher(self, name: str, declared: dict[str, float]) -> None:
        body = publisher(name, declared, event_bytes=100 + 50 * len(declared))
        reference = self.reference
        declarers = {
            t["name"]: reference.topics.get(t["name"], (t, name))[1] for t in body["topics"]
        }
        removed = set(declarers.values()) - reference.publishers.keys() - {name}
        same = reference.publishers.get(name) == body and not removed
        self._request("PUT", f"/v1/publishers/{name}", body, same=same)
        reference.publishers[name] = body
        for topic in body["topics"]:
            if declarers[topic["name"]] in {name, *removed}:
                reference.topics[topic["name"]] = (topic, name)

    @rule(name=names)
    def remove_subscriber(self, name: str) -> None:
        exists = self.reference.subscribers.pop(name, None) is not None
        self._request("DELETE", f"/v1/subscribers/{name}", ok=exists)

    @rule(name=sources)
    def remove_publisher(self, name: str) -> None:
        exists = self.reference.publishers.pop(name, None) is not None
        self._request("DELETE", f"/v1/publishers/{name}", ok=exists)

    @rule(name=names, filters=filters_with_weights)
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
        self._request("POST", path, body, ok=known is not None, same=changed == known)

    @rule(limit=st.sampled_from([None, 1.0, 5.0]), share=st.sampled_from([None, 0.2]))
    def set_budgets(self, limit: float | None, share: float | None) -> None:
        budgets = {"roles": [{"role": "crew", "utility": limit, "reserved_share": share}]}
        self._request("PUT", "/v1/budgets", budgets)
        self.reference.budgets = budgets

    @rule(phase=phases, factor=st.sampled_from([0.0, 3.0]))
    def set_profile(self, phase: str, factor: float) -> None:
        profile = {"rules": [{"filter": "camera/#", "factor": factor}]}
        self._request("PUT", f"/v1/profiles/{phase}", profile)
        self.reference.profiles[phase] = profile

    @rule(phase=phases)
    def open_incident(self, phase: str) -> None:
        possible = self.reference.phase is None
        self._request("POST", "/v1/incident", {"title": "x", "phase": phase}, ok=possible)
        if possible:
            self.reference.phase = phase

    @rule(phase=phases)
    def change_phase(self, phase: str) -> None:
        possible = self.reference.phase is not None
        self._request("PUT", "/v1/incident/phase", {"phase": phase}, ok=possible)
        if possible:
            self.reference.phase = phase

    @rule()
    def close_incident(self) -> None:
        self._request("DELETE", "/v1/incident", ok=self.reference.phase is not None)
        self.reference.phase = None

    # -- the network -----------------------------------------------------------------------------

    @rule(behaviour=behaviours)
    def plan_and_push(self, behaviour: Behaviour) -> None:
        reference = self.reference
        needed = reference.changes > reference.active_changes or reference.must_push
        self.controller.behaviour = behaviour
        if not needed:
            assert self.planner.step() is False
        elif behaviour == "accepts":
            assert self.planner.step() is True
            reference.flows = reference.plan()
            reference.active_changes, reference.must_push = reference.changes, False
        else:
            with pytest.raises(PushFailed):
                self.planner.step()
            reference.must_push = True
        self.controller.behaviour = "accepts"

    @precondition(lambda self: hasattr(self, "database"))
    @rule(controller_lost_state=st.booleans())
    def restart(self, controller_lost_state: bool) -> None:
        self.database.close()
        if controller_lost_state:
            self.controller.plain = None  # the controller has lost its state
        self._open()
        active_version = self.service.version
        self.reference.must_push = self.controller.version != active_version

    # -- invariants -----------------------------------------------------------------------

    @invariant()
    def service_matches_reference(self) -> None:
        if not hasattr(self, "reference"):
            return
        reference = self.reference
        subscribers: Any = self.web.get("/v1/subscribers").json
        listed = [s["subscriber"]["id"] for s in subscribers]
        assert sorted(listed) == sorted(reference.subscribers)
        answer = self.web.get("/v1/configuration")
        if answer.status_code == 404:
            assert reference.active_changes == 0
            return
        configuration = from_json(Configuration, answer.data)
        assert sorted(map(repr, configuration.flows)) == sorted(map(repr, reference.flows))
        assert configuration.version >= self.versions[-1]
        self.versions.append(configuration.version)
        if not reference.must_push:
            self._check_switches(configuration)

    def _check_switches(self, configuration: Configuration) -> None:
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
def test_service_matches_reference_on_sqlite(examples: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = (str(Path(folder) / f"{n}.sqlite") for n in itertools.count())
        run(lambda: next(files), examples, steps)


def test_service_matches_reference_on_postgresql(new_postgres_state: Callable[[], str]) -> None:
    run(new_postgres_state, 8, 20)
