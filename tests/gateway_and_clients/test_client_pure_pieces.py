"""The client library's decisions without sockets: versions, closing old flows, callbacks."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firedex.event_stamp import EventStamp
from firedex.mqtt_level_choice import MQTT_3, MQTT_5, LevelChoice
from firedex.wire import LogUtility, Subscription
from firedex_clients import Event, flow_set
from firedex_clients.client_plan import ClientPlan, PlannedFlow
from firedex_clients.connection_loop import ConnectionLoop, Timer
from firedex_clients.duplicates import Seen
from firedex_clients.event import UNMANAGED_FLOW
from firedex_clients.flow_connection import FlowSettings, Wanted
from firedex_clients.flow_filters import FlowFilters
from firedex_clients.flow_set import FlowSet, Place
from firedex_clients.flow_statistics import FlowStatistics
from firedex_clients.plan_file import read_plan
from firedex_clients.subscriptions import Subscriptions

# -- MQTT versions ---------------------------------------------------------------------------------


def test_a_broker_that_was_away_is_spoken_to_in_mqtt_5() -> None:
    choice = LevelChoice()
    choice.unanswered()
    assert choice.level == MQTT_3, "perhaps it knows nothing better"
    assert not choice.accepted(), "it is back, and may know MQTT 5 as well"
    assert choice.level == MQTT_5
    assert choice.accepted()
    choice.unanswered()
    assert (choice.level, choice.sure) == (MQTT_5, True), "later outages change nothing"


def test_a_broker_that_is_silent_to_mqtt_5_alone_is_spoken_to_in_3() -> None:
    choice = LevelChoice()
    choice.unanswered()
    choice.accepted()
    choice.unanswered()
    assert (choice.level, choice.sure) == (MQTT_3, True)
    assert choice.accepted()


def test_a_broker_that_goes_away_meanwhile_proves_nothing() -> None:
    choice = LevelChoice()
    for _ in range(5):
        choice.unanswered()
    assert not choice.sure


def test_a_broker_that_says_so_is_believed() -> None:
    choice = LevelChoice(MQTT_5)
    choice.refused()
    assert (choice.level, choice.sure) == (MQTT_3, True)


# -- closing old flows -----------------------------------------------------------------------------


class Clock:
    """Time and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[Timer] = []

    def monotonic(self) -> float:
        return self.now

    def later(self, seconds: float, action: Callable[[], None]) -> Timer:
        timer = Timer(self.now + seconds, len(self._timers), action)
        self._timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self._timers if each.at <= end]:
            timer = min(due)
            self._timers.remove(timer)
            self.now = max(self.now, timer.at)
            if timer.action is not None:
                timer.action()
        self.now = end


class FakeConnection(FlowFilters):
    """Grants at once; acknowledges an unsubscription when told to."""

    def __init__(self, flow: PlannedFlow) -> None:
        super().__init__(lasting=flow.lasting)
        self.settings, self.up, self.closed, self.connects = flow.settings, True, False, 1
        self.on_granted: Callable[[str], None] = lambda _: None
        self.sent = 0

    def open(self) -> None:
        pass

    def want(self, wanted: Wanted) -> None:
        self._add(wanted)
        self.granted.add(wanted.filter)

    def unwant(self, name: str) -> None:
        if self._remove(name, up=self.up) and self.up:
            self.sent += 1
            self._unsubscription_sent(name, self.sent)

    def lose(self) -> None:
        self.up = False
        self._nothing_in_force()

    def acknowledge(self) -> None:
        for number in range(1, self.sent + 1):
            self._unsubscription_acknowledged(number)

    def close(self) -> None:
        self.closed = True


class Flows:
    """A flow set on fake connections, with one filter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lasting: bool = False) -> None:
        self.clock, self.lasting = Clock(), lasting
        monkeypatch.setattr(flow_set, "time", self.clock)
        self.made: dict[int, FakeConnection] = {}
        self.set = FlowSet(cast(ConnectionLoop, self.clock), self._make, cast(Any, None))

    def _make(self, flow: PlannedFlow, _: object) -> FakeConnection:
        self.made[flow.number] = FakeConnection(flow)
        return self.made[flow.number]

    def go_to(self, number: int) -> None:
        flow = PlannedFlow(
            settings=FlowSettings(host="h", port=1, bind_ports=(number, number + 1)),
            number=number,
            priority=0,
            filters=("f",),
            lasting=self.lasting,
        )
        wanted = Wanted(filter="f", number=1, qos=1, retained=True)
        self.set.apply(ClientPlan(version=1, flows=(flow,)), {"f": wanted})


def test_an_old_flow_stays_until_the_broker_has_acknowledged_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = Flows(monkeypatch)
    flows.go_to(1)
    flows.go_to(2)
    flows.clock.advance(5.0)
    assert not flows.made[1].closed, "the broker may still be sending"
    flows.made[1].acknowledge()
    flows.clock.advance(2 * flow_set.LINGER_SECONDS)
    assert flows.made[1].closed
    assert not flows.made[2].closed


def test_an_old_flow_whose_end_is_never_acknowledged_is_closed_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = Flows(monkeypatch)
    flows.go_to(1)
    flows.go_to(2)
    flows.clock.advance(flow_set.LONGEST_GOODBYE_SECONDS + 1.0)
    assert flows.made[1].closed


def test_a_flow_that_is_wanted_again_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    flows = Flows(monkeypatch)
    flows.go_to(1)
    flows.go_to(2)
    flows.made[1].acknowledge()
    flows.clock.advance(0.4)
    flows.go_to(1)
    flows.made[2].acknowledge()
    flows.clock.advance(60.0)
    assert (flows.made[1].closed, flows.made[2].closed) == (False, True)


@pytest.mark.parametrize("lasting", [True, False])
def test_a_lasting_flow_that_is_down_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    """Its session collects events until it is told; one that does not last has ended."""
    flows = Flows(monkeypatch, lasting=lasting)
    flows.go_to(1)
    flows.made[1].lose()
    flows.go_to(2)
    flows.clock.advance(5.0)
    assert flows.made[1].closed is not lasting


def test_what_was_not_acknowledged_when_a_lasting_flow_is_lost_is_asked_again() -> None:
    connection = FakeConnection(PlannedFlow(**_flow(lasting=True)))
    for name in ("a", "b"):
        connection.want(Wanted(filter=name, number=1, qos=1, retained=True))
    connection.unwant("a")
    connection.lose()
    connection.unwant("b")
    assert connection.unsubscribing
    connection.want(Wanted(filter="b", number=1, qos=1, retained=True))
    assert connection._take_stale() == ["a"]


def _flow(**changes: Any) -> dict[str, Any]:
    settings = FlowSettings(host="h", port=1)
    return {"settings": settings, "number": 0, "priority": 0, "filters": ("a",), **changes}


# -- callbacks -------------------------------------------------------------------------------------


def deliver(subscriptions: Subscriptions, sequence: int, *, retained: bool = False) -> None:
    stamp = EventStamp(origin=b"12345678", sequence=sequence, published_at_nanoseconds=1)
    place = Place(FakeConnection(PlannedFlow(**_flow())), PlannedFlow(**_flow()), 1)
    place.connection.want(Wanted(filter="t", number=1, qos=0, retained=True))
    subscriptions.deliver(place, "t", b"x", 0, retained, [stamp.to_property()], None)


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3)])
@pytest.mark.parametrize("of", ["on_event", "on_delivery"])
def test_whatever_a_callback_raises_others_are_told(error: BaseException, of: str) -> None:
    told: list[Event] = []

    def raising(_: Event) -> None:
        raise error

    subscriptions = Subscriptions(FlowStatistics("crew"))
    subscription = Subscription(filter="t", utility=LogUtility(weight=1.0))
    subscriptions.add(subscription, raising if of == "on_event" else told.append)
    subscriptions.on_delivery = raising if of == "on_delivery" else told.append
    for sequence in (1, 2):
        deliver(subscriptions, sequence)
    assert len(told) == 2


def test_an_event_whose_number_cannot_be_believed_is_as_one_without() -> None:
    told: list[Event] = []
    subscriptions = Subscriptions(FlowStatistics("crew"))
    subscriptions.add(Subscription(filter="t", utility=LogUtility(weight=1.0)), told.append)
    for sequence in (1, 2**30, 2, 2):
        deliver(subscriptions, sequence)
    assert [event.event_id is not None for event in told] == [True, False, True]


def test_what_nobody_numbers_is_not_said_to_be_complete() -> None:
    statistics = FlowStatistics("crew")
    event = Event(
        topic="plain",
        filter="#",
        payload=b"",
        flow=0,
        priority=0,
        configuration_version=1,
        event_id=None,
        published_at_seconds=None,
        received_at_seconds=1.0,
    )
    statistics.count(event)
    statistics.count(event._replace(topic="numbered", event_id="o-1", published_at_seconds=0.5))
    (report,) = statistics.take(None)
    assert {c.topic: c.missing_events for c in report.topics} == {"plain": None, "numbered": 0}


# -- retained events -------------------------------------------------------------------------------


def seen_of(*events: int | tuple[int]) -> tuple[list[bool | None], int]:
    """What is new of these numbers (retained: in a tuple), and how many are missing."""
    seen = Seen()
    found = [
        seen.is_new("t", b"o", each)
        if isinstance(each, int)
        else seen.is_new_retained("t", b"o", *each)
        for each in events
    ]
    return found, seen.missing


@pytest.mark.parametrize(
    ("events", "new", "missing"),
    [
        (((5,), 1000, 1001), [True, True, True], 0),  # it is old: nothing is missing between
        ((1, 2, (900,), 3), [True, True, True, True], 0),  # of another filter's late subscription
        (((5,), (5,), 5, 5), [True, False, False, False], 0),  # once, however it comes
        ((1, 2, (2,)), [True, True, False], 0),
        ((1, (4,), 5), [True, True, True], 2),  # 2 and 3; 4 has come
        ((1, 4, (3,)), [True, True, True], 1),  # 2
        ((1, (4,), 2, 3, 4, (4,)), [True, True, True, True, False, False], 0),
        ((1, (2**30,), 2), [True, True, True], 0),
    ],
)
def test_a_retained_event_makes_no_gap_and_comes_once(
    events: tuple[int | tuple[int], ...], new: list[bool], missing: int
) -> None:
    assert seen_of(*events) == (new, missing)


def test_a_retained_event_opens_no_stream() -> None:
    told: list[Event] = []
    subscriptions = Subscriptions(FlowStatistics("crew"))
    made = subscriptions.add(Subscription(filter="t", utility=LogUtility(weight=1.0)), told.append)
    deliver(subscriptions, 1, retained=True)
    deliver(subscriptions, 100)
    assert (len(told), made.seen.missing) == (2, 0)


# -- statistics ------------------------------------------------------------------------------------


def test_the_plain_connection_is_no_flow_to_report_of() -> None:
    """The service refuses a batch that names it, and with it what is said of flows."""
    statistics = FlowStatistics("crew")
    for flow in (3, UNMANAGED_FLOW):
        statistics.count(Event("t", "t", b"x", flow, 0, 1, None, None, 0.0))
        statistics.missing(flow, "t", 1)
    assert [each.flow for each in statistics.take(None)] == [3]


# -- the plan on disk ------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{}", b"not JSON", b"\xff\xfe\0", b"[" * 100_000])
def test_a_plan_that_cannot_be_read_is_as_none(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    assert read_plan(file) is None


# -- commands --------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["http://localhost", "http://localhost:8088/", "http://[::1]"])
def test_the_own_address_is_found_with_or_without_a_port(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firedex_clients import sub_command

    asked: list[tuple[str, int]] = []

    class Probe:
        def __enter__(self) -> "Probe":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def connect(self, where: tuple[str, int]) -> None:
            asked.append(where)

        def getsockname(self) -> tuple[str, int]:
            return "10.0.0.21", 9

    fake = SimpleNamespace(socket=lambda *_: Probe(), AF_INET=2, SOCK_DGRAM=2)
    monkeypatch.setattr(sub_command, "socket", fake)
    assert sub_command._own_address(service) == "10.0.0.21"
    assert asked[0][0] in ("localhost", "::1")


def test_two_publishers_of_the_command_line_have_two_names() -> None:
    from firedex_clients.pub_command import default_name

    assert default_name().endswith(f"-{os.getpid()}")
