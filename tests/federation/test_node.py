"""Whole federations of nodes, with links and brokers in memory."""

import pytest

from firedex.federation.journal import MemoryJournal
from firedex.federation.node import NodeLimits
from tests.support.memory_federation import MemoryFederation, full_mesh, random_mesh, ring
from tests.support.waiting_journal import WaitingJournal

LINE = [("a", "b"), ("b", "c")]
TOPOLOGIES = {
    "line": LINE,
    "triangle": [("a", "b"), ("b", "c"), ("a", "c")],
    "ring": ring(6),
    "full mesh": full_mesh(6),
    "random mesh": random_mesh(25, seed=3),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_site_receives_exactly_one_copy(name: str, qos: int) -> None:
    network = MemoryFederation(TOPOLOGIES[name])
    for site in network.sites:
        network.want(site, "smoke/#")
    network.settle()
    source, *others = network.sites
    for number in range(20):
        network.broker(source).client_publishes("smoke/hall", f"{number}", qos=qos)
    network.settle()
    expected = [f"{number}".encode() for number in range(20)]
    assert {site: network.delivered(site) for site in others} == dict.fromkeys(others, expected)
    assert network.delivered(source) == []
    assert network.node(source).sender.unacknowledged == 0


def test_link_carries_one_copy_for_all_sites_behind_it() -> None:
    network = MemoryFederation([("a", "b"), ("b", "c"), ("b", "d"), ("b", "e")])
    for site in "cde":
        network.want(site, "smoke/#")
    network.settle()
    before = network.frames_sent["a", "b"]
    network.broker("a").client_publishes("smoke/hall", "fire")
    network.settle()
    assert network.frames_sent["a", "b"] == before + 1
    assert [network.delivered(site) for site in "cde"] == [[b"fire"]] * 3


def test_event_without_interest_stays_at_its_site() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    network.broker("a").client_publishes("smoke/hall", "x", qos=1)
    network.settle()
    assert network.delivered("c") == network.delivered("b") == []


def test_withdrawn_interest_ends_delivery() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    network.want("c")
    network.settle()
    network.broker("a").client_publishes("alarm/1", "x", qos=1)
    network.settle()
    assert network.delivered("c") == []


def test_delivered_qos_is_the_lower_of_event_and_interest() -> None:
    network = MemoryFederation(LINE)
    network.want("b", "alarm/#", qos=1)
    network.want("c", "alarm/#", qos=0)
    network.settle()
    network.broker("a").client_publishes("alarm/1", "x", qos=2)
    network.settle()
    assert network.broker("b").delivered == [(b"alarm/1", b"x", 1)]
    assert network.broker("c").delivered == [(b"alarm/1", b"x", 0)]


def test_reliable_events_survive_a_cut_and_arrive_in_order() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    for number in range(10):
        network.broker("a").client_publishes("alarm/1", f"{number}", qos=1)
    network.deliver_some(7)
    network.cut("b", "c")
    network.settle()
    for number in range(10, 15):
        network.broker("a").client_publishes("alarm/1", f"{number}", qos=2)
    network.settle()
    network.connect("b", "c")
    network.settle()
    network.pass_time(5)
    assert network.delivered("c") == [f"{number}".encode() for number in range(15)]
    assert network.node("a").sender.unacknowledged == 0


def test_traffic_takes_another_path_after_a_cut() -> None:
    network = MemoryFederation(ring(5))
    network.want("s2", "alarm/#")
    network.settle()
    network.cut("s0", "s1")
    network.settle()
    network.broker("s0").client_publishes("alarm/1", "detour")
    network.settle()
    assert network.delivered("s2") == [b"detour"]


def test_killed_origin_sends_its_journal_after_restart() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    network.cut("a", "b")
    network.settle()
    network.broker("a").client_publishes("alarm/1", "before the crash", qos=1)
    network.settle()
    network.kill("a")
    network.restart("a")
    network.settle()
    network.pass_time(3)
    assert network.delivered("c") == [b"before the crash"]


def test_restarted_destination_receives_no_event_twice() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    for number in range(5):
        network.broker("a").client_publishes("alarm/1", f"{number}", qos=2)
    network.deliver_some(9)
    network.kill("c")
    network.settle()
    network.restart("c", {"alarm/#": 2})
    network.settle()
    network.pass_time(10)
    assert network.delivered("c") == [f"{number}".encode() for number in range(5)]


def test_events_that_are_committed_together_are_acknowledged_together() -> None:
    network = MemoryFederation(LINE)
    network.kill("c")
    journal = network.sites["c"].journal = WaitingJournal()
    network.restart("c", {"alarm/#": 1})
    network.settle()
    journal.waits = True
    for number in range(10):
        network.broker("a").client_publishes("alarm/1", f"{number}", qos=1)
    network.settle()
    before = network.frames_sent["c", "b"]
    assert network.node("a").sender.unacknowledged == 10
    journal.commit()
    network.settle()
    assert network.node("a").sender.unacknowledged == 0
    assert network.frames_sent["c", "b"] == before + 1


def test_event_is_not_acknowledged_before_its_delivery_is_committed() -> None:
    """An acknowledgement of an earlier event must not include it."""
    network = MemoryFederation(LINE)
    network.kill("c")
    journal = network.sites["c"].journal = WaitingJournal()
    network.restart("c", {"alarm/#": 1})
    network.settle()
    network.broker("a").client_publishes("alarm/1", "first", qos=1)
    network.settle()
    journal.waits = True
    network.broker("a").client_publishes("alarm/1", "second", qos=1)
    network.settle()
    network.pass_time(2)  # the event is sent again, and found to be a duplicate
    assert network.delivered("c") == [b"first", b"second"]
    assert network.node("a").sender.unacknowledged == 1


def test_restored_backup_does_not_reuse_sequence_numbers() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    network.broker("a").client_publishes("alarm/1", "one", qos=1)
    network.settle()
    network.kill("a")
    network.sites["a"].journal = type(network.sites["a"].journal)()  # an empty, old journal
    network.now -= 600.0  # and a clock that is wrong by ten minutes
    network.restart("a")
    network.settle()
    network.pass_time(2)
    network.broker("a").client_publishes("alarm/1", "two", qos=1)
    network.settle()
    network.pass_time(2)
    assert network.delivered("c") == [b"one", b"two"]


@pytest.mark.parametrize("links", [[("a", "b")], LINE, full_mesh(3)], ids=["pair", "line", "mesh"])
@pytest.mark.parametrize("qos", [1, 2])
def test_site_without_journal_whose_clock_is_behind_loses_no_reliable_event(
    links: list[tuple[str, str]], qos: int
) -> None:
    """Its events have lower ids than those that the other sites have received before."""
    network = MemoryFederation(links)
    origin, *others = sorted(network.sites)
    for site in others:
        network.want(site, "alarm/#")
    network.settle()
    for number in range(3):
        network.broker(origin).client_publishes("alarm/1", f"{number}", qos=qos)
    network.settle()
    for site in network.sites:  # so that nobody has the record with the later epoch
        network.kill(site)
    network.sites[origin].journal = MemoryJournal()
    network.clock_offsets[origin] = -500.0
    for site in network.sites:
        network.restart(site, {"alarm/#": 2} if site in others else None)
    network.settle()
    for number in range(3, 10):
        network.broker(origin).client_publishes("alarm/1", f"{number}", qos=qos)
        network.deliver_some(2)
    network.pass_time(20)
    expected = [f"{number}".encode() for number in range(10)]
    for site in others:
        assert sorted(network.delivered(site)) == expected, site
    assert network.node(origin).sender.unacknowledged == 0


def test_renumbered_events_survive_a_crash() -> None:
    network = MemoryFederation([("a", "b")])
    network.want("b", "alarm/#")
    network.settle()
    network.broker("a").client_publishes("alarm/1", "old", qos=1)
    network.settle()
    for site in "ab":
        network.kill(site)
    network.sites["a"].journal = MemoryJournal()
    network.clock_offsets["a"] = -500.0
    for site in "ab":
        network.restart(site, {"alarm/#": 2} if site == "b" else None)
    network.settle()
    network.broker("a").client_publishes("alarm/1", "new", qos=1)
    for _ in range(100):
        if network.node("a").epoch < 900_000:
            network.deliver_some(1)
    network.kill("a")
    network.settle()
    network.restart("a")
    network.pass_time(20)
    assert network.delivered("b") == [b"old", b"new"]


def test_journal_limit_drops_the_oldest_events_and_counts_them() -> None:
    network = MemoryFederation(LINE, limits=NodeLimits(journal_events=10))
    network.want("c", "alarm/#")
    network.settle()
    network.cut("b", "c")
    network.settle()
    for number in range(25):
        network.broker("a").client_publishes("alarm/1", f"{number}", qos=1)
    network.settle()
    node = network.node("a")
    assert node.sender.unacknowledged == 10
    assert node.counters.journal_limit == node.sender.drops_by_site["c"] == 15
    network.connect("b", "c")
    network.settle()
    assert network.delivered("c") == [f"{number}".encode() for number in range(15, 25)]


def test_unavailable_broker_delays_reliable_events_but_loses_none() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    network.broker("c").is_ready = False
    network.broker("a").client_publishes("alarm/1", "x", qos=1)
    network.settle()
    assert network.delivered("c") == []
    network.broker("c").is_ready = True
    network.pass_time(1)
    assert network.delivered("c") == [b"x"]


def test_filters_over_the_limit_are_refused_and_counted() -> None:
    network = MemoryFederation(LINE, limits=NodeLimits(filters_per_site=100))
    network.want("c", *[f"flood/{number}" for number in range(101)])
    network.settle()
    assert network.node("a").counters.refused_filters >= 101
    assert network.node("a").interest.remote.filters["c"] == {}


def test_refused_filter_is_requested_again_when_there_is_room() -> None:
    network = MemoryFederation(LINE, limits=NodeLimits(filters_per_site=100))
    wanted = [f"flood/{number}" for number in range(100)]
    network.want("c", *wanted)
    network.settle()
    network.want("c", *wanted, "alarm/#")
    network.pass_time(2)
    assert set(network.node("a").interest.remote.filters["c"]) == set(wanted)
    network.want("c", *wanted[1:], "alarm/#")
    network.pass_time(2)
    assert set(network.node("a").interest.remote.filters["c"]) == {*wanted[1:], "alarm/#"}


def test_refused_filters_are_not_requested_without_end() -> None:
    network = MemoryFederation(LINE, limits=NodeLimits(filters_per_site=10))
    network.want("c", *[f"flood/{number}" for number in range(10)])
    network.settle()
    network.want("c", *[f"flood/{number}" for number in range(1, 20)])
    network.pass_time(5)
    before = dict(network.frames_sent)
    network.pass_time(60)
    assert network.frames_sent == before


def test_table_that_differs_from_the_digest_is_requested_again() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#", "smoke/#")
    network.settle()
    network.node("a").interest.remote.change("c", {"forged/#": 0}, ["alarm/#"])
    network.pass_time(2)
    assert set(network.node("a").interest.remote.filters["c"]) == {"alarm/#", "smoke/#"}


# -- retained messages -----------------------------------------------------------------------------


def test_new_interest_receives_the_retained_value() -> None:
    network = MemoryFederation(LINE)
    network.broker("a").client_publishes("door/1", "open", retain=True)
    network.settle()
    network.want("c", "door/#")
    network.settle()
    assert network.broker("c").retained == {b"door/1": b"open"}


def test_last_write_wins_after_a_partition() -> None:
    network = MemoryFederation(LINE)
    for site in "abc":
        network.want(site, "door/#")
    network.settle()
    network.cut("b", "c")
    network.settle()
    network.broker("a").client_publishes("door/1", "open", retain=True, qos=1)
    network.now += 1
    network.broker("c").client_publishes("door/1", "closed", retain=True, qos=1)
    network.settle()
    network.connect("b", "c")
    network.settle()
    network.pass_time(1)
    assert [network.broker(site).retained for site in "abc"] == [{b"door/1": b"closed"}] * 3


def test_deleted_value_does_not_return_after_a_merge() -> None:
    network = MemoryFederation(LINE)
    for site in "abc":
        network.want(site, "door/#")
    network.settle()
    network.broker("a").client_publishes("door/1", "open", retain=True, qos=1)
    network.settle()
    network.cut("b", "c")
    network.settle()
    network.now += 1
    network.broker("a").client_publishes("door/1", "", retain=True, qos=1)
    network.settle()
    network.connect("b", "c")
    network.settle()
    network.pass_time(1)
    assert [network.broker(site).retained for site in "abc"] == [{}, {}, {}]


def test_old_value_of_a_broker_does_not_replace_a_newer_one() -> None:
    network = MemoryFederation(LINE)
    network.broker("c").retained[b"door/1"] = b"very old"
    for site in "ab":
        network.want(site, "door/#")
    network.settle()
    network.broker("a").client_publishes("door/1", "new", retain=True, qos=1)
    network.settle()
    network.want("c", "door/#")
    network.settle()
    network.pass_time(1)
    assert [network.broker(site).retained for site in "abc"] == [{b"door/1": b"new"}] * 3


def test_value_written_without_interest_is_not_replaced_by_an_older_one() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "door/#")
    network.settle()
    network.broker("a").client_publishes("door/1", "open", retain=True, qos=1)
    network.settle()
    network.want("c")
    network.settle()
    network.now += 60.0
    network.broker("a").client_publishes("door/1", "closed", retain=True, qos=1)
    network.settle()
    network.want("c", "door/#")
    network.settle()
    network.pass_time(1)
    assert [network.broker(site).retained for site in "ac"] == [{b"door/1": b"closed"}] * 2


def test_retained_value_is_published_when_the_broker_is_available_again() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "door/#")
    network.settle()
    network.broker("c").is_ready = False
    network.broker("a").client_publishes("door/1", "open", retain=True)
    network.settle()
    network.broker("c").is_ready = True
    network.node("c").broker_connected()
    assert network.broker("c").retained == {b"door/1": b"open"}


def test_site_that_does_not_return_after_a_restart_is_forgotten() -> None:
    network = MemoryFederation(LINE)
    network.want("c", "alarm/#")
    network.settle()
    network.kill("c")
    network.kill("a")
    network.restart("a")
    network.kill("b")
    network.kill("a")
    network.restart("a")
    network.broker("a").client_publishes("alarm/1", "x", qos=1)
    assert network.node("a").sender.unacknowledged == 1
    network.pass_time(3700, step=60)
    assert network.node("a").sender.unacknowledged == 0
    assert "c" not in network.node("a").interest.remote.filters
