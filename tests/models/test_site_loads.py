"""The load of each queue, compared with manual calculation."""

from math import log
from typing import Any

import pytest

from firedex.wire import Scenario, from_plain
from firedex_models import MissingAssignment, predict
from tests.support.small_site import (
    assign,
    predict_site,
    publisher_entry,
    queue_load,
    site,
    subscriber_entry,
    topic,
)

PACKET_BITS = 800
LINK = 1e6


def link_load(
    events_per_second: float, bits: float = PACKET_BITS, bandwidth: float = LINK
) -> float:
    return events_per_second * bits / bandwidth


def test_rate_of_wildcard_filter_is_the_sum_over_its_topics() -> None:
    prediction = predict_site(site())
    assert prediction.subscriptions[0].offered_events_per_second == 30.0
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(link_load(30))


@pytest.mark.parametrize(("second_flow", "events"), [(0, 30.0), (1, 40.0)])
def test_overlapping_filters_count_once_in_a_flow_and_twice_across_flows(
    second_flow: int, events: float
) -> None:
    document = site(subscribers=[subscriber_entry("command", "smoke/#", "smoke/1")])
    document["network"]["broker"]["out_events_per_second"] = 1000.0
    document["assignment"] = [
        assign("command", "smoke/#"),
        assign("command", "smoke/1", flow=second_flow),
    ]
    prediction = predict_site(document)
    assert [s.offered_events_per_second for s in prediction.subscriptions] == [30.0, 10.0]
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(link_load(events))
    assert queue_load(prediction, "b1 out to command") == pytest.approx(events / 1000)


def test_every_subscriber_receives_its_own_copy() -> None:
    document = site(
        subscribers=[subscriber_entry("a", "smoke/#"), subscriber_entry("b", "smoke/1")]
    )
    document["assignment"] = [assign("a", "smoke/#"), assign("b", "smoke/1")]
    assert queue_load(predict_site(document), "s1 to hosts") == pytest.approx(link_load(30 + 10))


def test_rates_of_publishers_of_one_topic_add_up() -> None:
    document = site()
    document["publishers"].append(publisher_entry("p1", {"smoke/1": 5.0}))
    prediction = predict_site(document)
    assert prediction.subscriptions[0].offered_events_per_second == 35.0
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(link_load(35))
    assert queue_load(prediction, "s0 to broker") == pytest.approx(link_load(75, bandwidth=1e9))


def test_forwarded_topics_enter_at_the_broker() -> None:
    document = site()
    document["network"]["broker"] |= {
        "in_events_per_second": 1000.0,
        "forwarded": [{"from_broker": "b2", "topic": "smoke/1", "rate_per_second": 5.0}],
    }
    prediction = predict_site(document)
    assert prediction.subscriptions[0].offered_events_per_second == 35.0
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(link_load(35))
    assert queue_load(prediction, "b1 in") == pytest.approx(0.075)
    assert queue_load(prediction, "s0 to broker") == pytest.approx(link_load(70, bandwidth=1e9))


def test_topic_without_local_publisher_is_predicted() -> None:
    document = site(publishers=[])
    document["network"]["broker"]["forwarded"] = [
        {"from_broker": "b2", "topic": "smoke/1", "rate_per_second": 5.0}
    ]
    row = predict_site(document).subscriptions[0]
    assert row.offered_events_per_second == 5.0
    assert row.delay_mean_seconds == pytest.approx(PACKET_BITS / LINK, rel=0.01)


def test_topic_without_subscribers_loads_only_the_inbound_path() -> None:
    document = site()
    document["network"]["broker"]["in_events_per_second"] = 1000.0
    without = site(publishers=[publisher_entry("p0", {"smoke/1": 10.0, "smoke/2": 20.0})])
    without["network"]["broker"]["in_events_per_second"] = 1000.0
    assert queue_load(predict_site(document), "b1 in") == pytest.approx(0.07)
    assert queue_load(predict_site(without), "b1 in") == pytest.approx(0.03)
    outbound = "s1 to hosts"
    assert queue_load(predict_site(document), outbound) == queue_load(
        predict_site(without), outbound
    )


def test_drop_rate_reduces_load_and_success_rate() -> None:
    prediction = predict_site(site(assignment=[assign("command", "smoke/#", drop_rate=0.25)]))
    assert prediction.subscriptions[0].success_rate == pytest.approx(0.75)
    assert prediction.subscriptions[0].drop_rate == 0.25
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(link_load(30 * 0.75))
    assert prediction.utility == pytest.approx(log(1.75))
    assert prediction.maximum_utility == pytest.approx(log(2))
    assert prediction.achieved_utility_rate == pytest.approx(log(1.75) / log(2))


@pytest.mark.parametrize(("enforced_at", "lookups"), [("gateway", 15.0), ("meter", 30.0)])
def test_metered_events_load_the_lookup_of_their_switch(enforced_at: str, lookups: float) -> None:
    document = site()
    document["network"]["switches"][1]["in_packets_per_second"] = 1000.0
    document["assignment"] = [assign("command", "smoke/#", drop_rate=0.5, enforced_at=enforced_at)]
    prediction = predict_site(document)
    assert queue_load(prediction, "s1 in") == pytest.approx(lookups / 1000)
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(link_load(15))
    assert prediction.subscriptions[0].success_rate == pytest.approx(0.5)


@pytest.mark.parametrize(("qos", "wire_bytes"), [(0, 129), (1, 131), (2, 131)])
def test_acknowledged_events_are_larger_over_tcp(qos: int, wire_bytes: int) -> None:
    # MQTT: 1 + 1 + 2 + 7 ("smoke/1") + 1 + 51 bytes; Ethernet, IP and TCP: 66; packet id: 2
    document = site(transport="tcp", subscribers=[subscriber_entry("command", "smoke/#", qos=qos)])
    assert queue_load(predict_site(document), "s1 to hosts") == pytest.approx(
        link_load(30, wire_bytes * 8)
    )


def test_qos_does_not_change_the_size_over_udp() -> None:
    document = site(subscribers=[subscriber_entry("command", "smoke/#", qos=1)])
    assert queue_load(predict_site(document), "s1 to hosts") == pytest.approx(link_load(30))


def test_flow_acknowledges_a_topic_if_one_of_its_filters_has_qos_1() -> None:
    document = site(
        transport="tcp", subscribers=[subscriber_entry("command", "smoke/#", "smoke/1")]
    )
    document["subscribers"][0]["subscriptions"][1]["qos"] = 1
    document["assignment"] = [assign("command", "smoke/#"), assign("command", "smoke/1")]
    bits = 10 * 131 * 8 + 20 * 129 * 8
    assert queue_load(predict_site(document), "s1 to hosts") == pytest.approx(bits / LINK)


def test_subscriber_may_have_its_own_transport() -> None:
    document = site()
    document["subscribers"][0]["transport"] = "tcp"
    prediction = predict_site(document)
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(link_load(30, 129 * 8))
    assert queue_load(prediction, "s0 to broker") == pytest.approx(link_load(70, bandwidth=1e9))


def test_stamped_events_are_larger() -> None:
    prediction = predict_site(site(stamped_events=True))
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(link_load(30, 124 * 8))


def test_exponential_sizes_have_the_same_load_and_a_longer_wait() -> None:
    fixed = site(publishers=[publisher_entry("p0", {"smoke/1": 600.0})])
    random = site(
        publishers=fixed["publishers"],
        topics=[topic("smoke/1", size_distribution="exponential")],
    )
    with_fixed, with_random = predict_site(fixed), predict_site(random)
    assert queue_load(with_random, "s1 to hosts") == pytest.approx(
        queue_load(with_fixed, "s1 to hosts")
    )
    random_delay, fixed_delay = (
        p.subscriptions[0].delay_mean_seconds for p in (with_random, with_fixed)
    )
    assert random_delay is not None
    assert fixed_delay is not None
    assert random_delay > fixed_delay


def test_subscriber_without_subscriptions_does_not_change_prediction() -> None:
    document = site()
    document["subscribers"].append({"id": "idle", "switch": "s1"})
    assert predict_site(document) == predict_site(site())


def test_site_without_clients_is_predicted() -> None:
    prediction = predict_site(site(publishers=[], subscribers=[], assignment=[]))
    assert prediction.subscriptions == ()
    assert [switch.utilization for switch in prediction.switches] == [0.0, 0.0]
    assert prediction.achieved_utility_rate == 1.0


def test_site_without_topics_is_predicted() -> None:
    prediction = predict_site(site(topics=[], publishers=[]))
    assert prediction.subscriptions[0].method == "nothing-offered"


@pytest.mark.parametrize("rate", [0.0, 1e-300])
def test_negligible_rate_counts_as_nothing_offered(rate: float) -> None:
    prediction = predict_site(site(publishers=[publisher_entry("p0", {"smoke/1": rate})]))
    row = prediction.subscriptions[0]
    assert queue_load(prediction, "s1 to hosts") == pytest.approx(0.0, abs=1e-12)
    assert row.success_rate == 1.0
    assert row.method == "nothing-offered"
    assert prediction.classes[0].delay_mean_seconds is None


def test_subscription_without_matching_topic_has_a_reason() -> None:
    document = site(subscribers=[subscriber_entry("command", "gas/#", deadline_seconds=1.0)])
    document["assignment"] = [assign("command", "gas/#")]
    prediction = predict_site(document)
    row = prediction.subscriptions[0]
    assert (row.method, row.offered_events_per_second) == ("nothing-offered", 0.0)
    assert row.reason == "no publisher publishes a topic that the filter matches"
    assert (row.delay_mean_seconds, row.delay_p95_seconds, row.deadline_met) == (None,) * 3
    assert prediction.deadlines_missed == 0


def test_deadline_does_not_matter_if_nothing_is_offered() -> None:
    def timely_fraction(**options: Any) -> float:
        document = site(subscribers=[subscriber_entry("command", "gas/#", **options)])
        document["assignment"] = [assign("command", "gas/#")]
        return predict_site(document).subscriptions[0].timely_fraction

    assert timely_fraction(deadline_seconds=1.0) == timely_fraction()


def test_prediction_without_assignment_is_rejected() -> None:
    with pytest.raises(MissingAssignment, match="run 'firedex plan' first") as caught:
        predict(from_plain(Scenario, site(assignment=None)))
    assert caught.value.scenario == "small"


def test_assignment_argument_replaces_assignment_of_scenario() -> None:
    planned = from_plain(Scenario, site(assignment=[assign("command", "smoke/#", drop_rate=0.5)]))
    bare = from_plain(Scenario, site(assignment=None))
    assert (
        predict(bare, assignment=planned.assignment).to_prediction()
        == predict(planned).to_prediction()
    )
