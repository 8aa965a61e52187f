"""Who sends what to whom, and what load that puts on each queue: by hand."""

from math import log

import pytest
from small_site import assign, predicted, published, queue_of, site, subscribed, topic

from firedex.wire import Scenario, from_plain
from firedex_models import NotAssigned, predict

PACKET_BITS = 800
LINK = 1e6


def load(events_per_second: float, bits: float = PACKET_BITS, bandwidth: float = LINK) -> float:
    return events_per_second * bits / bandwidth


def test_a_wildcards_rate_is_the_sum_over_its_topics() -> None:
    prediction = predicted(site())
    assert prediction.subscriptions[0].offered_events_per_second == 30.0
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(load(30))


@pytest.mark.parametrize(("second_flow", "events"), [(0, 30.0), (1, 40.0)])
def test_overlapping_filters_count_once_in_a_flow_and_twice_across_flows(
    second_flow: int, events: float
) -> None:
    document = site(subscribers=[subscribed("command", "smoke/#", "smoke/1")])
    document["network"]["broker"]["out_events_per_second"] = 1000.0
    document["assignment"] = [
        assign("command", "smoke/#"),
        assign("command", "smoke/1", flow=second_flow),
    ]
    prediction = predicted(document)
    assert [s.offered_events_per_second for s in prediction.subscriptions] == [30.0, 10.0]
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(load(events))
    assert queue_of(prediction, "b1 out to command") == pytest.approx(events / 1000)


def test_every_subscriber_gets_a_copy() -> None:
    document = site(subscribers=[subscribed("a", "smoke/#"), subscribed("b", "smoke/1")])
    document["assignment"] = [assign("a", "smoke/#"), assign("b", "smoke/1")]
    assert queue_of(predicted(document), "s1 to hosts") == pytest.approx(load(30 + 10))


def test_several_publishers_of_one_topic_add_up() -> None:
    document = site()
    document["publishers"].append(published("p1", {"smoke/1": 5.0}))
    prediction = predicted(document)
    assert prediction.subscriptions[0].offered_events_per_second == 35.0
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(load(35))
    assert queue_of(prediction, "s0 to broker") == pytest.approx(load(75, bandwidth=1e9))


def test_forwarded_topics_come_in_at_the_broker() -> None:
    document = site()
    document["network"]["broker"] |= {
        "in_events_per_second": 1000.0,
        "forwarded": [{"from_broker": "b2", "topic": "smoke/1", "rate_per_second": 5.0}],
    }
    prediction = predicted(document)
    assert prediction.subscriptions[0].offered_events_per_second == 35.0
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(load(35))
    assert queue_of(prediction, "b1 in") == pytest.approx(0.075)
    assert queue_of(prediction, "s0 to broker") == pytest.approx(load(70, bandwidth=1e9))


def test_a_topic_that_is_only_forwarded_is_predicted() -> None:
    document = site(publishers=[])
    document["network"]["broker"]["forwarded"] = [
        {"from_broker": "b2", "topic": "smoke/1", "rate_per_second": 5.0}
    ]
    row = predicted(document).subscriptions[0]
    assert row.offered_events_per_second == 5.0
    assert row.delay_mean_seconds == pytest.approx(PACKET_BITS / LINK, rel=0.01)


def test_a_topic_that_nobody_wants_loads_the_way_in_only() -> None:
    document = site()
    document["network"]["broker"]["in_events_per_second"] = 1000.0
    without = site(publishers=[published("p0", {"smoke/1": 10.0, "smoke/2": 20.0})])
    without["network"]["broker"]["in_events_per_second"] = 1000.0
    assert queue_of(predicted(document), "b1 in") == pytest.approx(0.07)
    assert queue_of(predicted(without), "b1 in") == pytest.approx(0.03)
    outbound = "s1 to hosts"
    assert queue_of(predicted(document), outbound) == queue_of(predicted(without), outbound)


def test_a_drop_rate_thins_the_load_and_the_success() -> None:
    prediction = predicted(site(assignment=[assign("command", "smoke/#", drop_rate=0.25)]))
    assert prediction.subscriptions[0].success_rate == pytest.approx(0.75)
    assert prediction.subscriptions[0].drop_rate == 0.25
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(load(30 * 0.75))
    assert prediction.utility == pytest.approx(log(1.75))
    assert prediction.maximum_utility == pytest.approx(log(2))
    assert prediction.achieved_utility_rate == pytest.approx(log(1.75) / log(2))


@pytest.mark.parametrize(("enforced_at", "looked_at"), [("gateway", 15.0), ("meter", 30.0)])
def test_what_a_meter_drops_the_switch_has_looked_at_before(
    enforced_at: str, looked_at: float
) -> None:
    document = site()
    document["network"]["switches"][1]["in_packets_per_second"] = 1000.0
    document["assignment"] = [assign("command", "smoke/#", drop_rate=0.5, enforced_at=enforced_at)]
    prediction = predicted(document)
    assert queue_of(prediction, "s1 in") == pytest.approx(looked_at / 1000)
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(load(15))
    assert prediction.subscriptions[0].success_rate == pytest.approx(0.5)


@pytest.mark.parametrize(("qos", "wire_bytes"), [(0, 129), (1, 131), (2, 131)])
def test_acknowledged_events_are_larger_over_tcp(qos: int, wire_bytes: int) -> None:
    # 1 + 1 + 2 + 7 ("smoke/1") + 1 + 51, and 66 of Ethernet, IP and TCP; 2 for the packet id
    document = site(transport="tcp", subscribers=[subscribed("command", "smoke/#", qos=qos)])
    assert queue_of(predicted(document), "s1 to hosts") == pytest.approx(load(30, wire_bytes * 8))


def test_acknowledgement_does_not_change_the_size_over_udp() -> None:
    document = site(subscribers=[subscribed("command", "smoke/#", qos=1)])
    assert queue_of(predicted(document), "s1 to hosts") == pytest.approx(load(30))


def test_a_flow_carries_a_topic_acknowledged_if_one_of_its_filters_asks_for_it() -> None:
    document = site(transport="tcp", subscribers=[subscribed("command", "smoke/#", "smoke/1")])
    document["subscribers"][0]["subscriptions"][1]["qos"] = 1
    document["assignment"] = [assign("command", "smoke/#"), assign("command", "smoke/1")]
    bits = 10 * 131 * 8 + 20 * 129 * 8
    assert queue_of(predicted(document), "s1 to hosts") == pytest.approx(bits / LINK)


def test_each_party_may_have_a_transport_of_its_own() -> None:
    document = site()
    document["subscribers"][0]["transport"] = "tcp"
    prediction = predicted(document)
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(load(30, 129 * 8))
    assert queue_of(prediction, "s0 to broker") == pytest.approx(load(70, bandwidth=1e9))


def test_stamped_events_are_larger() -> None:
    prediction = predicted(site(stamped_events=True))
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(load(30, 124 * 8))


def test_exponential_sizes_have_the_same_load_and_a_longer_wait() -> None:
    fixed = site(publishers=[published("p0", {"smoke/1": 600.0})])
    random = site(
        publishers=fixed["publishers"],
        topics=[topic("smoke/1", size_distribution="exponential")],
    )
    of_fixed, of_random = predicted(fixed), predicted(random)
    assert queue_of(of_random, "s1 to hosts") == pytest.approx(queue_of(of_fixed, "s1 to hosts"))
    slow, fast = (p.subscriptions[0].delay_mean_seconds for p in (of_random, of_fixed))
    assert slow is not None
    assert fast is not None
    assert slow > fast


def test_a_subscriber_without_subscriptions_changes_nothing() -> None:
    document = site()
    document["subscribers"].append({"id": "idle", "switch": "s1"})
    assert predicted(document) == predicted(site())


def test_a_site_without_anybody_is_predicted() -> None:
    prediction = predicted(site(publishers=[], subscribers=[], assignment=[]))
    assert prediction.subscriptions == ()
    assert [switch.utilization for switch in prediction.switches] == [0.0, 0.0]
    assert prediction.achieved_utility_rate == 1.0


def test_a_site_without_topics_is_predicted() -> None:
    prediction = predicted(site(topics=[], publishers=[]))
    assert prediction.subscriptions[0].method == "nothing-offered"


@pytest.mark.parametrize("rate", [0.0, 1e-300])
def test_rates_of_nothing_or_almost_nothing(rate: float) -> None:
    prediction = predicted(site(publishers=[published("p0", {"smoke/1": rate})]))
    row = prediction.subscriptions[0]
    assert queue_of(prediction, "s1 to hosts") == pytest.approx(0.0, abs=1e-12)
    assert row.success_rate == 1.0
    assert row.method == "nothing-offered"
    assert prediction.classes[0].delay_mean_seconds is None


def test_a_subscription_that_matches_nothing_says_so() -> None:
    document = site(subscribers=[subscribed("command", "gas/#", deadline_seconds=1.0)])
    document["assignment"] = [assign("command", "gas/#")]
    prediction = predicted(document)
    row = prediction.subscriptions[0]
    assert (row.method, row.offered_events_per_second) == ("nothing-offered", 0.0)
    assert row.reason == "nobody publishes a topic that the filter matches"
    assert (row.delay_mean_seconds, row.delay_p95_seconds, row.deadline_met) == (None,) * 3
    assert prediction.deadlines_missed == 0


def test_where_nothing_is_offered_a_deadline_costs_nothing() -> None:
    def timely(**each: float) -> float:
        document = site(subscribers=[subscribed("command", "gas/#", **each)])
        document["assignment"] = [assign("command", "gas/#")]
        return predicted(document).subscriptions[0].timely_fraction

    assert timely(deadline_seconds=1.0) == timely()


def test_without_an_assignment_there_is_nothing_to_predict() -> None:
    with pytest.raises(NotAssigned, match="plan one first") as caught:
        predict(from_plain(Scenario, site(assignment=None)))
    assert caught.value.scenario == "small"


def test_an_assignment_may_be_given_beside_the_scenario() -> None:
    planned = from_plain(Scenario, site(assignment=[assign("command", "smoke/#", drop_rate=0.5)]))
    bare = from_plain(Scenario, site(assignment=None))
    assert (
        predict(bare, assignment=planned.assignment).to_prediction()
        == predict(planned).to_prediction()
    )
