"""Logic of the client library without sockets: versions, closing old flows, callbacks, plans."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firedex.transport.event_stamp import EventStamp
from firedex.transport.mqtt.version import MQTT_3, MQTT_5, LevelChoice
from firedex.wire import LogUtility, Subscription
from firedex_clients import Event, flow_set
from firedex_clients.duplicates import ReceivedEvents
from firedex_clients.events import UNMANAGED_FLOW
from firedex_clients.flow import FilterRequest, FlowConnection, FlowSettings
from firedex_clients.flow_set import FlowSet, FlowSlot
from firedex_clients.flow_statistics import FlowStatistics
from firedex_clients.plan import ClientPlan, PlannedFlow, read_plan
from firedex_clients.subscriptions import Subscriptions

# -- MQTT versions ---------------------------------------------------------------------------------


def test_mqtt_5_is_used_after_an_outage_of_the_broker() -> None:
    choice = LevelChoice()
    choice.unanswered()
    assert choice.level == MQTT_3, "the broker may support only MQTT 3.1.1"
    assert not choice.accepted(), "the broker is reachable again and may support MQTT 5"
    assert choice.level == MQTT_5
    assert choice.accepted()
    choice.unanswered()
    assert (choice.level, choice.sure) == (MQTT_5, True), "later outages do not change the level"


def test_mqtt_3_is_used_if_only_mqtt_5_gets_no_response() -> None:
    choice = LevelChoice()
    choice.unanswered()
    choice.accepted()
    choice.unanswered()
    assert (choice.level, choice.sure) == (MQTT_3, True)
    assert choice.accepted()


def test_outage_of_the_broker_does_not_confirm_a_version() -> None:
    choice = LevelChoice()
    for _ in range(5):
        choice.unanswered()
    assert not choice.sure


def test_mqtt_3_is_used_if_the_broker_rejects_mqtt_5() -> None:
    choice = LevelChoice(MQTT_5)
    choice.refused()
    assert (choice.level, choice.sure) == (MQTT_3, True)


# -- closing old flows -----------------------------------------------------------------------------


@dataclass(order=True)
class Timer:
    at: float
    serial: int
    action: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.action = None


class FakeLoop:
    """An event loop whose time the test advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, action: Callable[[], None]) -> Timer:
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


class FakeConnection(FlowConnection):
    """A connection that grants every subscription; tests acknowledge unsubscriptions."""

    closed = False

    def __init__(self, flow: PlannedFlow) -> None:
        super().__init__(
            flow.settings, cast(Any, None), client_id="fake", persistent=flow.persistent
        )
        self.up, self.connects = True, 1
        self.on_granted: Callable[[str], None] = lambda _: None
        self.unsubscribe_count = 0

    def open(self) -> None:
        pass

    def subscribe(self, request: FilterRequest) -> None:
        self._add(request)
        self.granted.add(request.filter)

    def unsubscribe(self, name: str) -> None:
        if self._remove(name, connected=self.up) and self.up:
            self.unsubscribe_count += 1
            self._unsubscription_sent(name, self.unsubscribe_count)

    def lose_connection(self) -> None:
        self.up = False
        self._reset_filters()

    def acknowledge(self) -> None:
        for number in range(1, self.unsubscribe_count + 1):
            self._unsubscription_acknowledged(number)

    def close(self) -> None:
        self.closed = True


class FlowSetWithOneFilter:
    """A flow set with fake connections and one filter."""

    def __init__(self, *, persistent: bool = False) -> None:
        self.loop, self.persistent = FakeLoop(), persistent
        self.connections: dict[int, FakeConnection] = {}
        self.set = FlowSet(
            cast(Any, self.loop),
            self._make_connection,
            deliver=lambda *_: None,
            on_change=lambda: None,
            on_refusal=lambda _: None,
        )

    def _make_connection(self, flow: PlannedFlow, _: object) -> FakeConnection:
        self.connections[flow.number] = FakeConnection(flow)
        return self.connections[flow.number]

    def move_filter_to(self, number: int) -> None:
        flow = PlannedFlow(
            settings=FlowSettings(host="h", port=1, bind_ports=(number, number + 1)),
            number=number,
            priority=0,
            filters=("f",),
            persistent=self.persistent,
        )
        request = FilterRequest(filter="f", number=1, qos=1, retained=True)
        self.set.apply(ClientPlan(version=1, flows=(flow,)), {"f": request})


def test_old_flow_stays_open_until_the_unsubscription_is_acknowledged() -> None:
    flows = FlowSetWithOneFilter()
    flows.move_filter_to(1)
    flows.move_filter_to(2)
    flows.loop.advance(5.0)
    assert not flows.connections[1].closed, "the broker may still send events"
    flows.connections[1].acknowledge()
    flows.loop.advance(2 * flow_set.IDLE_SECONDS)
    assert flows.connections[1].closed
    assert not flows.connections[2].closed


def test_old_flow_is_closed_after_the_unsubscribe_timeout() -> None:
    flows = FlowSetWithOneFilter()
    flows.move_filter_to(1)
    flows.move_filter_to(2)
    flows.loop.advance(flow_set.MAX_UNSUBSCRIBE_SECONDS + 1.0)
    assert flows.connections[1].closed


def test_flow_stays_open_if_its_filter_moves_back() -> None:
    flows = FlowSetWithOneFilter()
    flows.move_filter_to(1)
    flows.move_filter_to(2)
    flows.connections[1].acknowledge()
    flows.loop.advance(0.4)
    flows.move_filter_to(1)
    flows.connections[2].acknowledge()
    flows.loop.advance(60.0)
    assert (flows.connections[1].closed, flows.connections[2].closed) == (False, True)


@pytest.mark.parametrize("persistent", [True, False])
def test_disconnected_persistent_flow_is_not_closed(persistent: bool) -> None:
    """A persistent session collects events until it is unsubscribed; others have ended."""
    flows = FlowSetWithOneFilter(persistent=persistent)
    flows.move_filter_to(1)
    flows.connections[1].lose_connection()
    flows.move_filter_to(2)
    flows.loop.advance(5.0)
    assert flows.connections[1].closed is not persistent


def test_unacknowledged_unsubscription_of_a_persistent_flow_is_repeated() -> None:
    connection = FakeConnection(PlannedFlow(**_flow_fields(persistent=True)))
    for name in ("a", "b"):
        connection.subscribe(FilterRequest(filter=name, number=1, qos=1, retained=True))
    connection.unsubscribe("a")
    connection.lose_connection()
    connection.unsubscribe("b")
    assert connection.unsubscribing
    connection.subscribe(FilterRequest(filter="b", number=1, qos=1, retained=True))
    assert connection._take_stale() == ["a"]


def _flow_fields(**changes: Any) -> dict[str, Any]:
    settings = FlowSettings(host="h", port=1)
    return {"settings": settings, "number": 0, "priority": 0, "filters": ("a",), **changes}


# -- callbacks -------------------------------------------------------------------------------------


def deliver(subscriptions: Subscriptions, sequence: int, *, retained: bool = False) -> None:
    stamp = EventStamp(origin=b"12345678", sequence=sequence, published_at_nanoseconds=1)
    slot = FlowSlot(FakeConnection(PlannedFlow(**_flow_fields())), PlannedFlow(**_flow_fields()), 1)
    slot.connection.subscribe(FilterRequest(filter="t", number=1, qos=0, retained=True))
    subscriptions.deliver(slot, "t", b"x", 0, retained, [stamp.to_property()], None)


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3)])
@pytest.mark.parametrize("failing_callback", ["on_event", "on_delivery"])
def test_other_callback_is_called_if_one_raises(
    error: BaseException, failing_callback: str
) -> None:
    received: list[Event] = []

    def raise_error(_: Event) -> None:
        raise error

    subscriptions = Subscriptions(
        "crew", raise_error if failing_callback == "on_delivery" else received.append
    )
    subscription = Subscription(filter="t", utility=LogUtility(weight=1.0))
    subscriptions.add(
        subscription, raise_error if failing_callback == "on_event" else received.append
    )
    for sequence in (1, 2):
        deliver(subscriptions, sequence)
    assert len(received) == 2


def test_event_with_an_implausible_sequence_number_has_no_id() -> None:
    received: list[Event] = []
    subscriptions = Subscriptions("crew")
    subscriptions.add(Subscription(filter="t", utility=LogUtility(weight=1.0)), received.append)
    for sequence in (1, 2**30, 2, 2):
        deliver(subscriptions, sequence)
    assert [event.event_id is not None for event in received] == [True, False, True]


def test_topic_without_sequence_numbers_has_no_missing_count() -> None:
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


def record_events(*events: int | tuple[int]) -> tuple[list[bool | None], int]:
    """Return which events are new (retained events are tuples), and the number missing."""
    received_events = ReceivedEvents()
    results = [
        received_events.is_new("t", b"o", each)
        if isinstance(each, int)
        else received_events.is_new_retained("t", b"o", *each)
        for each in events
    ]
    return results, received_events.missing


@pytest.mark.parametrize(
    ("events", "new", "missing"),
    [
        (((5,), 1000, 1001), [True, True, True], 0),  # the retained event is old: no gap
        ((1, 2, (900,), 3), [True, True, True, True], 0),  # a later subscription of another filter
        (((5,), (5,), 5, 5), [True, False, False, False], 0),  # retained and live copies count once
        ((1, 2, (2,)), [True, True, False], 0),
        ((1, (4,), 5), [True, True, True], 2),  # 2 and 3 are missing
        ((1, 4, (3,)), [True, True, True], 1),  # 2 is missing
        ((1, (4,), 2, 3, 4, (4,)), [True, True, True, True, False, False], 0),
        ((1, (2**30,), 2), [True, True, True], 0),
    ],
)
def test_retained_event_creates_no_gap_and_is_delivered_once(
    events: tuple[int | tuple[int], ...], new: list[bool], missing: int
) -> None:
    assert record_events(*events) == (new, missing)


def test_retained_event_does_not_start_a_stream() -> None:
    received: list[Event] = []
    subscriptions = Subscriptions("crew")
    added = subscriptions.add(
        Subscription(filter="t", utility=LogUtility(weight=1.0)), received.append
    )
    deliver(subscriptions, 1, retained=True)
    deliver(subscriptions, 100)
    assert (len(received), added.received.missing) == (2, 0)


# -- statistics ------------------------------------------------------------------------------------


def test_statistics_exclude_the_unmanaged_connection() -> None:
    """The service would reject the whole report because of this flow."""
    statistics = FlowStatistics("crew")
    for flow in (3, UNMANAGED_FLOW):
        statistics.count(Event("t", "t", b"x", flow, 0, 1, None, None, 0.0))
        statistics.missing(flow, "t", 1)
    assert [each.flow for each in statistics.take(None)] == [3]


# -- the plan on disk ------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{}", b"not JSON", b"\xff\xfe\0", b"[" * 100_000])
def test_unreadable_plan_file_is_ignored(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    assert read_plan(file) is None


# -- commands --------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["http://localhost", "http://localhost:8088/", "http://[::1]"])
def test_own_address_is_detected_for_urls_with_and_without_port(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    from firedex_clients import commands

    connected_to: list[tuple[str, int]] = []

    class FakeSocket:
        def __enter__(self) -> "FakeSocket":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def connect(self, address: tuple[str, int]) -> None:
            connected_to.append(address)

        def getsockname(self) -> tuple[str, int]:
            return "10.0.0.21", 9

    fake_module = SimpleNamespace(socket=lambda *_: FakeSocket(), AF_INET=2, SOCK_DGRAM=2)
    monkeypatch.setattr(commands, "socket", fake_module)
    assert commands._own_address(service) == "10.0.0.21"
    assert connected_to[0][0] in ("localhost", "::1")


def test_default_publisher_id_contains_the_process_id() -> None:
    from firedex_clients.commands import default_publisher_id

    assert default_publisher_id().endswith(f"-{os.getpid()}")
