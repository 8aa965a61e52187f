"""The table of topic filters against a model of a broker, for any order of events."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from firedex.transport.mqtt.session_packets import NEVER_EXPIRES
from tests.support.interest_site import REFUSED, Client, Site

NAMES = ("smoke/#", "heat", "$share/crew/heat", "$share/ems/heat", "$SYS/#", "co/+")
REPORTED = {"$share/crew/heat": "heat", "$share/ems/heat": "heat"}
CLIENTS = ("a", "b", "c")


@dataclass
class BrokerSession:
    """A session as a broker has it."""

    expiry: int
    known: bool = True
    filters: dict[str, int] = field(default_factory=dict)
    client: Client | None = None
    left_at: float = 0.0


class ModelBroker(RuleBasedStateMachine):
    """A broker with a few clients, whose sessions say what the table must report."""

    def __init__(self) -> None:
        super().__init__()
        self.site = Site()
        self.sessions: dict[str, BrokerSession] = {}

    @initialize(names=st.sets(st.sampled_from(CLIENTS)))
    def have_sessions_before_the_gateway(self, names: set[str]) -> None:
        for name in names:
            self.sessions[name] = BrokerSession(expiry=NEVER_EXPIRES, known=False)

    @rule(
        name=st.sampled_from(CLIENTS),
        level=st.sampled_from([4, 5]),
        clean=st.booleans(),
        expiry=st.sampled_from([0, 10, 50]),
        override=st.sampled_from([None, None, 0, 30]),
        accepted=st.sampled_from([True, True, True, False]),
    )
    def connect(
        self, name: str, level: int, clean: bool, expiry: int, override: int | None, accepted: bool
    ) -> None:
        old = self.sessions.get(name)
        present = old is not None and not clean
        if not accepted:
            Client(self.site, name, level=level, clean=clean, code=5).lose_connection()
            return
        client = Client(
            self.site,
            name,
            level=level,
            clean=clean,
            expiry=expiry,
            present=present,
            expiry_override=override,
        )
        if level == 4:
            given_expiry = 0 if clean else NEVER_EXPIRES
        else:
            given_expiry = expiry if override is None else override
        session = old if present and old is not None else BrokerSession(expiry=given_expiry)
        session.expiry = given_expiry
        previous, session.client = (old.client if old else None), client
        self.sessions[name] = session
        if previous is not None:
            previous.lose_connection()

    @rule(
        name=st.sampled_from(CLIENTS),
        filters=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), min_size=1, max_size=3),
        refused=st.sampled_from([False, False, True]),
    )
    def subscribe(self, name: str, filters: dict[str, int], refused: bool) -> None:
        session = self.sessions.get(name)
        if session is None or session.client is None:
            return
        codes = [REFUSED if refused else qos for qos in filters.values()]
        session.client.subscribe(*filters.items(), codes=codes)
        if not refused:
            session.filters.update(filters)
            session.known = True

    @rule(name=st.sampled_from(CLIENTS), filters=st.sets(st.sampled_from(NAMES), min_size=1))
    def unsubscribe(self, name: str, filters: set[str]) -> None:
        session = self.sessions.get(name)
        if session is None or session.client is None:
            return
        session.client.unsubscribe(*filters)
        for each in filters:
            session.filters.pop(each, None)

    @rule(name=st.sampled_from(CLIENTS), expiry=st.sampled_from([None, None, 0, 20]))
    def leave(self, name: str, expiry: int | None) -> None:
        session = self.sessions.get(name)
        if session is None or session.client is None:
            return
        if session.client.level == 5 and expiry is not None and session.expiry:
            session.expiry = expiry
        session.client.disconnect(expiry)
        self._left(name)

    @rule(name=st.sampled_from(CLIENTS))
    def lose_connection(self, name: str) -> None:
        session = self.sessions.get(name)
        if session is not None and session.client is not None:
            session.client.lose_connection()
            self._left(name)

    def _left(self, name: str) -> None:
        session = self.sessions[name]
        session.client, session.left_at = None, self.site.clock.now
        if not session.expiry:
            del self.sessions[name]

    @rule(seconds=st.sampled_from([1, 9, 25]))
    def wait(self, seconds: int) -> None:
        self.site.clock.now += seconds
        for name, session in list(self.sessions.items()):
            expires = session.client is None and session.expiry != NEVER_EXPIRES
            if expires and session.left_at + session.expiry <= self.site.clock.now:
                del self.sessions[name]

    @rule()
    def restart_gateway(self) -> None:
        self.site.restart()
        for name in list(self.sessions):
            if self.sessions[name].client is not None:
                self._left(name)

    @invariant()
    def report_is_that_of_the_broker(self) -> None:
        expected: Counter[tuple[str, int]] = Counter()
        for session in self.sessions.values():
            if session.known:
                expected.update(
                    {
                        (REPORTED.get(name, name), qos)
                        for name, qos in session.filters.items()
                        if name != "$SYS/#"
                    }
                )
        assert self.site.filters() == expected

    @invariant()
    def unknown_sessions_are_those_that_were_seen(self) -> None:
        at_most = sum(not session.known for session in self.sessions.values())
        connected = sum(
            not session.known and session.client is not None for session in self.sessions.values()
        )
        assert connected <= self.site.unknown <= at_most


ModelBroker.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAgainstAModelBroker = ModelBroker.TestCase
