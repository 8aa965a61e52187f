"""The table of topic filters, driven by the packets of clients and broker; no sockets."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.gateway.interest import InterestLimits, InterestTable, reported_filter
from firedex.gateway.interest_packets import MAX_PENDING_BYTES, ConnectionObserver
from firedex.transport.mqtt.session_packets import NEVER_EXPIRES
from tests.support.interest_site import REFUSED, Client, Clock, Site, resumed
from tests.support.session_packets import (
    connack,
    connect,
    disconnect,
    suback,
    subscribe,
    unsubscribe,
)


@pytest.fixture
def site() -> Site:
    return Site()


# -- subscriptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [3, 4, 5])
def test_clients_are_counted_by_filter_and_qos(site: Site, level: int) -> None:
    for number, qos in enumerate([1, 1, 0]):
        Client(site, f"crew-{number}", level=level).subscribe(("smoke/#", qos), ("heat", 2))
    assert site.filters() == {("smoke/#", 0): 1, ("smoke/#", 1): 2, ("heat", 2): 3}


def test_filters_are_sorted(site: Site) -> None:
    Client(site, "a").subscribe(("b", 1), ("a", 0))
    Client(site, "b").subscribe(("b", 0))
    found = site.table.snapshot().report().filters
    assert [(each.filter, each.qos) for each in found] == [("a", 0), ("b", 0), ("b", 1)]


def test_subscription_counts_from_its_suback(site: Site) -> None:
    client = Client(site)
    client.request(("smoke", 1))
    assert site.filters() == {}
    client.observer.broker_sent(suback(1, [1]))
    assert site.filters() == {("smoke", 1): 1}


def test_granted_qos_is_reported(site: Site) -> None:
    Client(site).subscribe(("smoke", 2), codes=[1])
    assert site.filters() == {("smoke", 1): 1}


@pytest.mark.parametrize(("level", "code"), [(4, 0x80), (5, 0x87), (5, 0x03)])
def test_refused_filter_is_not_reported(site: Site, level: int, code: int) -> None:
    Client(site, level=level).subscribe(("secret", 1), ("smoke", 1), codes=[code, 1])
    assert site.filters() == {("smoke", 1): 1}


def test_refused_repetition_keeps_the_subscription(site: Site) -> None:
    client = Client(site)
    client.subscribe(("smoke", 1))
    client.subscribe(("smoke", 2), codes=[REFUSED])
    assert site.filters() == {("smoke", 1): 1}


def test_repeated_subscription_replaces_the_qos(site: Site) -> None:
    client = Client(site)
    client.subscribe(("smoke", 2))
    client.subscribe(("smoke", 0))
    assert site.filters() == {("smoke", 0): 1}


@pytest.mark.parametrize("level", [4, 5])
def test_unsubscribed_filter_is_removed(site: Site, level: int) -> None:
    client = Client(site, level=level)
    client.subscribe(("smoke", 1), ("heat", 1))
    client.unsubscribe("smoke", "never subscribed")
    assert site.filters() == {("heat", 1): 1}


def test_refused_unsubscribe_keeps_the_filter(site: Site) -> None:
    client = Client(site)
    client.subscribe(("smoke", 1), ("heat", 1))
    client.unsubscribe("smoke", "heat", codes=[0x87, 0])
    assert site.filters() == {("smoke", 1): 1}


def test_pipelined_subscription_counts_after_connack(site: Site) -> None:
    observer = ConnectionObserver(site.table, connect("eager"))
    observer.client_sent(subscribe(7, [("smoke", 1)]))
    observer.broker_sent(connack())
    observer.broker_sent(suback(7, [1]))
    assert site.filters() == {("smoke", 1): 1}


def test_rejected_client_has_no_filters(site: Site) -> None:
    client = Client(site, code=0x87)
    client.subscribe(("smoke", 1))
    assert (site.filters(), site.unknown) == ({}, 0)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("smoke/#", "smoke/#"),
        ("$share/crew/smoke/+", "smoke/+"),
        ("$share/crew//smoke", "/smoke"),
        ("$share/crew/$SYS/#", None),
        ("$share/crew", None),
        ("$share/crew/", None),
        ("$SYS/broker/#", None),
        ("$queue/smoke", None),
        ("smoke#", None),
        ("", None),
    ],
)
def test_reported_filter(name: str, reported: str | None) -> None:
    assert reported_filter(name) == reported


def test_client_counts_once_for_a_filter_and_its_shared_form(site: Site) -> None:
    client = Client(site)
    client.subscribe(("smoke", 1), ("$share/crew/smoke", 1), ("$SYS/#", 0))
    assert site.filters() == {("smoke", 1): 1}
    client.unsubscribe("smoke")
    assert site.filters() == {("smoke", 1): 1}
    client.unsubscribe("$share/crew/smoke")
    assert site.filters() == {}


# -- sessions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("graceful", [False, True])
def test_clean_session_ends_with_its_connection(site: Site, level: int, graceful: bool) -> None:
    client = Client(site, level=level)
    client.subscribe(("smoke", 1))
    client.disconnect() if graceful else client.lose_connection()
    assert site.filters() == {}


def test_session_with_expiry_0_ends_with_its_connection_without_clean_start(site: Site) -> None:
    client = Client(site, clean=False)
    client.subscribe(("smoke", 1))
    client.lose_connection()
    assert site.filters() == {}


def test_persistent_session_of_mqtt_3_never_expires(site: Site) -> None:
    client = Client(site, level=4, clean=False)
    client.subscribe(("smoke", 1))
    client.disconnect()
    site.clock.now += 1e9
    assert site.filters() == {("smoke", 1): 1}


def test_session_expires_after_its_interval(site: Site) -> None:
    client = Client(site, expiry=60)
    client.subscribe(("smoke", 1))
    site.clock.now += 100  # does not count while the client is connected
    client.lose_connection()
    site.clock.now += 59
    assert site.filters() == {("smoke", 1): 1}
    site.clock.now += 1
    assert site.filters() == {}


@pytest.mark.parametrize(("in_disconnect", "after"), [(10, 10), (0, 0), (200, 200)])
def test_disconnect_changes_the_expiry(site: Site, in_disconnect: int, after: int) -> None:
    client = Client(site, expiry=60)
    client.subscribe(("smoke", 1))
    client.disconnect(expiry=in_disconnect)
    site.clock.now += after - 1
    assert bool(site.filters()) == (after > 0)
    site.clock.now += 1
    assert site.filters() == {}


def test_disconnect_cannot_prolong_a_session_without_expiry(site: Site) -> None:
    client = Client(site, expiry=0)
    client.subscribe(("smoke", 1))
    client.observer.client_sent(disconnect(expiry=60))
    assert site.filters() == {}


@pytest.mark.parametrize(("wanted", "given_by_broker"), [(600, 60), (0, 60), (NEVER_EXPIRES, 60)])
def test_broker_overrides_the_expiry(site: Site, wanted: int, given_by_broker: int) -> None:
    client = Client(site, expiry=wanted, expiry_override=given_by_broker)
    client.subscribe(("smoke", 1))
    client.disconnect()
    site.clock.now += given_by_broker - 1
    assert site.filters() == {("smoke", 1): 1}
    site.clock.now += 1
    assert site.filters() == {}


def test_session_with_the_longest_interval_never_expires(site: Site) -> None:
    client = Client(site, expiry=NEVER_EXPIRES)
    client.subscribe(("smoke", 1))
    client.disconnect()
    site.clock.now += 1e10
    assert site.filters() == {("smoke", 1): 1}


@pytest.mark.parametrize("level", [4, 5])
def test_resumed_session_keeps_its_filters(site: Site, level: int) -> None:
    options: dict[str, Any] = {"level": level, "clean": False, "expiry": 60}
    client = Client(site, **options)
    client.subscribe(("smoke", 1))
    client.disconnect()
    Client(site, present=True, **options)
    site.clock.now += 100
    assert (site.filters(), site.unknown) == ({("smoke", 1): 1}, 0)


@pytest.mark.parametrize("clean", [False, True])
def test_new_session_removes_the_filters_of_the_old_one(site: Site, clean: bool) -> None:
    """With clean start, and also if the broker has lost the session."""
    Client(site, clean=False, expiry=60).subscribe(("smoke", 1))
    Client(site, clean=clean, present=False)
    assert site.filters() == {}


def test_rejected_connect_does_not_change_the_session(site: Site) -> None:
    client = Client(site, clean=False, expiry=60)
    client.subscribe(("smoke", 1))
    Client(site, clean=True, code=0x87).lose_connection()
    assert site.filters() == {("smoke", 1): 1}


def test_mqtt_31_session_is_kept_because_connack_does_not_mention_it(site: Site) -> None:
    first = Client(site, level=3, clean=False)
    first.subscribe(("smoke", 1))
    first.disconnect()
    Client(site, level=3, clean=False)
    assert (site.filters(), site.unknown) == ({("smoke", 1): 1}, 0)


def test_session_is_taken_over_by_a_second_connection(site: Site) -> None:
    first = Client(site, clean=False, expiry=60)
    first.subscribe(("smoke", 1))
    second = Client(site, clean=False, expiry=60, present=True)
    first.lose_connection()
    second.subscribe(("heat", 0))
    assert site.filters() == {("smoke", 1): 1, ("heat", 0): 1}
    site.clock.now += 100
    assert len(site.filters()) == 2, "the second connection is open"


def test_packets_of_the_old_connection_are_ignored_after_a_clean_takeover(site: Site) -> None:
    first = Client(site)
    first.request(("smoke", 1))
    second = Client(site)
    first.observer.broker_sent(suback(1, [1]))
    first.unsubscribe("heat")
    first.lose_connection()
    second.subscribe(("heat", 0))
    assert site.filters() == {("heat", 0): 1}


def test_late_acknowledgement_of_the_old_connection_removes_no_filter(site: Site) -> None:
    first = Client(site, clean=False, expiry=60)
    first.request(("smoke", 0), ("heat", 0))
    second = Client(site, clean=False, expiry=60, present=True)
    second.subscribe(("smoke", 2))
    first.observer.broker_sent(suback(1, [0, 0]))
    assert site.filters() == {("smoke", 2): 1, ("heat", 0): 1}
    first.unsubscribe("smoke")
    assert site.filters() == {("smoke", 2): 1, ("heat", 0): 1}


def test_unacknowledged_subscription_of_a_persistent_session_is_assumed(site: Site) -> None:
    client = Client(site, clean=False, expiry=60)
    client.subscribe(("heat", 2))
    client.request(("smoke", 1), ("heat", 0), ("bad", 3))
    client.lose_connection()
    assert site.filters() == {("smoke", 1): 1, ("heat", 2): 1, ("bad", 2): 1}


def test_unacknowledged_subscription_of_a_clean_session_is_never_reported(site: Site) -> None:
    client = Client(site)
    client.request(("smoke", 1))
    client.lose_connection()
    assert (site.filters(), site.versions) == ({}, [])


def test_clients_without_id_are_counted_separately(site: Site) -> None:
    clients = [Client(site, "", level=4) for _ in range(3)]
    for client in clients:
        client.subscribe(("smoke", 1))
    assert site.filters() == {("smoke", 1): 3}
    clients[0].disconnect()
    assert site.filters() == {("smoke", 1): 2}


def test_client_without_id_ends_with_its_connection(site: Site) -> None:
    client = Client(site, "", expiry=60)
    client.subscribe(("smoke", 1))
    client.disconnect()
    assert site.filters() == {}


def test_assigned_client_id_is_that_of_the_session(site: Site) -> None:
    client = Client(site, "", expiry=60, assigned="auto-1")
    client.subscribe(("smoke", 1))
    client.disconnect()
    assert site.filters() == {("smoke", 1): 1}
    Client(site, "auto-1", clean=True)
    assert site.filters() == {}


# -- sessions that are not known -------------------------------------------------------------------


def test_session_without_a_record_is_unknown_until_it_subscribes(site: Site) -> None:
    client = resumed(site)
    assert (site.filters(), site.unknown) == ({}, 1)
    client.subscribe(("secret", 1), codes=[REFUSED])
    assert site.unknown == 1
    client.subscribe(("smoke", 1))
    assert (site.filters(), site.unknown) == ({("smoke", 1): 1}, 0)


def test_unknown_session_stays_unknown_until_it_expires(site: Site) -> None:
    client = resumed(site)
    client.disconnect()
    site.clock.now += 59
    assert site.unknown == 1
    resumed(site).disconnect()
    assert site.unknown == 1
    site.clock.now += 60
    assert site.unknown == 0


def test_unknown_session_ends_with_a_clean_start(site: Site) -> None:
    resumed(site)
    Client(site, clean=True)
    assert site.unknown == 0


# -- versions --------------------------------------------------------------------------------------


def test_version_changes_once_for_each_packet_that_changes_the_report(site: Site) -> None:
    first = site.table.version
    client = Client(site, clean=False, expiry=60)
    client.subscribe(("a", 0), ("b", 0), ("c", 0))
    client.subscribe(("a", 0))
    client.subscribe(("$SYS/#", 0))
    client.unsubscribe("d")
    client.disconnect()
    assert site.table.version == first + 1
    site.clock.now += 60
    site.table.expire()
    assert site.versions == [first + 1, first + 2]


# -- hostile and malformed input -------------------------------------------------------------------


@given(st.binary(min_size=2, max_size=40), st.binary(min_size=2, max_size=40))
@settings(max_examples=200, deadline=None)
def test_no_packet_raises(first: bytes, second: bytes) -> None:
    table = InterestTable(instance="test", clock=Clock())
    observers = [
        ConnectionObserver(table, first),
        ConnectionObserver(table, connect("crew")),
        ConnectionObserver(table, connect("crew", level=4)),
    ]
    for observer in observers:
        observer.broker_sent(connack())
        for kind in range(0x10, 0x100, 0x10):
            packet = bytes((kind,)) + (len(second) - 2).to_bytes(1, "big") + second[2:]
            observer.client_sent(packet)
            observer.broker_sent(packet)
        observer.closed()
    table.snapshot().report()


def test_filter_that_is_not_utf_8_is_not_reported(site: Site) -> None:
    client = Client(site)
    client.observer.client_sent(subscribe(1, [("smoke", 1)]).replace(b"smoke", b"smo\xffe"))
    client.observer.broker_sent(suback(1, [1]))
    assert site.filters() == {}


def test_session_over_its_limit_counts_as_unknown_until_it_ends() -> None:
    site = Site(InterestLimits(session_bytes=1000))
    client = Client(site, clean=False, expiry=60)
    client.subscribe(*((f"smoke/{number}", 1) for number in range(10)))
    assert (len(site.filters()), site.unknown) == (4, 1)
    client.subscribe(("heat", 1))
    client.unsubscribe("smoke/0")
    site.restart()
    assert (len(site.filters()), site.unknown) == (3, 1)
    resumed(site).subscribe(("smoke/0", 1))
    assert site.unknown == 1
    Client(site)
    assert (site.filters(), site.unknown) == ({}, 0)


def test_total_limit_does_not_change_other_sessions() -> None:
    site = Site(InterestLimits(total_bytes=500))
    Client(site, "first").subscribe(("smoke", 1), ("heat", 1))
    second = Client(site, "second")
    second.subscribe(("smoke", 1))
    assert (site.filters(), site.unknown) == ({("smoke", 1): 1, ("heat", 1): 1}, 1)
    second.disconnect()
    assert site.unknown == 0


def test_oldest_disconnected_session_is_forgotten_over_the_limit() -> None:
    site = Site(InterestLimits(sessions=2))
    for name in ("a", "b", "c"):
        client = Client(site, name, clean=False, expiry=60)
        client.subscribe((name, 1))
        client.disconnect()
    assert site.filters() == {("b", 1): 1, ("c", 1): 1}
    resumed(site, "a")
    assert site.unknown == 1


def test_too_many_unacknowledged_requests_count_as_unknown(site: Site) -> None:
    client = Client(site)
    for number in range(MAX_PENDING_BYTES // 60_000 + 2):
        client.request(("x" * 60_000 + str(number), 1))
    assert site.unknown == 1


def test_packet_id_that_is_used_again_needs_no_more_memory(site: Site) -> None:
    client = Client(site)
    for _ in range(100):
        client.observer.client_sent(subscribe(1, [("x" * 60_000, 1)]))
        client.observer.client_sent(unsubscribe(2, ["x" * 60_000]))
    assert site.unknown == 0


def test_expiry_times_of_resumed_sessions_are_removed(site: Site) -> None:
    for _ in range(5000):
        resumed(site).lose_connection()
    assert len(site.table._expiries) < 2000
    site.clock.now += 60
    assert site.unknown == 0
