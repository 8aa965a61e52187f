"""One valid example of every wire type."""

from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any

from firedex import wire
from firedex.wire import Scenario, from_plain
from tests.support.small_site import site

__all__ = ["EXAMPLES", "VALUE_TYPES"]

VALUE_TYPES: tuple[type[Any], ...] = tuple(
    item
    for name in wire.__all__
    if isinstance(item := getattr(wire, name), type)
    and not issubclass(item, Exception)
    and item not in (wire.EncodedJson, wire.Problem)
)
"""Every exported wire type except ``EncodedJson`` (text) and ``Problem`` (a part of errors)."""

ENDPOINTS = wire.FlowEndpoints(
    transport="udp",
    subscriber_address=IPv4Address("10.0.0.5"),
    subscriber_ports=(20_000, 20_001),
    gateway_address=IPv4Address("10.0.0.1"),
    gateway_port=1884,
)
FLOW = wire.Flow(
    subscriber="command",
    flow=2,
    priority=1,
    drop_rate=0.25,
    enforced_at="meter",
    qos=0,
    filters=("smoke/#", "heat/+"),
    endpoints=ENDPOINTS,
)
SUBSCRIPTION_PREDICTION = wire.SubscriptionPrediction(
    subscriber="command",
    filter="smoke/#",
    flow=0,
    priority=0,
    drop_rate=0.1,
    offered_events_per_second=30.0,
    success_rate=0.9,
    delay_mean_seconds=0.01,
    delay_p50_seconds=0.008,
    delay_p95_seconds=None,
    delay_p99_seconds=None,
    utility=0.6,
    maximum_utility=0.7,
    timely_fraction=0.5,
    deadline_seconds=0.5,
    deadline_met=False,
    method="unstable",
    reason="s1 to hosts: too much",
)
CLASS_PREDICTION = wire.ClassPrediction(
    priority=0,
    subscriptions=3,
    offered_events_per_second=30.0,
    success_rate=1.0,
    delay_mean_seconds=0.01,
    delay_p95_seconds=None,
)
SWITCH_PREDICTION = wire.SwitchPrediction(id="s1", utilization=1.5)
QUEUE_PREDICTION = wire.QueuePrediction(
    id="s1 to hosts", kind="switch-out", utilization=1.5, stable=False, reason="too much"
)
PREDICTION = wire.Prediction(
    model="fan-out",
    subscriptions=(SUBSCRIPTION_PREDICTION,),
    classes=(CLASS_PREDICTION,),
    switches=(SWITCH_PREDICTION,),
    queues=(QUEUE_PREDICTION,),
    first_to_saturate="s1 to hosts",
    utility=0.6,
    maximum_utility=0.7,
    achieved_utility_rate=0.857,
    achieved_utility_rate_per_subscription=0.857,
    timely_utility=0.4,
    deadlines_missed=1,
)
CLASS_QUEUE = wire.ClassQueue(priority=0, guaranteed_bits_per_second=12_000.0, limit_packets=100)
SHAPED_PORT = wire.ShapedPort(towards="s2", bandwidth_bits_per_second=5e6, classes=(CLASS_QUEUE,))
PACKET_LIMIT = wire.PacketLimit(packets_per_second=12.5, burst_packets=10)
FLOW_RULE = wire.FlowRule(
    subscriber="command", flow=2, priority=1, endpoints=ENDPOINTS, limit=PACKET_LIMIT
)
DESIRED_SWITCH = wire.DesiredSwitch(switch="s1", ports=(SHAPED_PORT,), flows=(FLOW_RULE,))
CONTROL_ENDPOINT = wire.ControlEndpoint(address=IPv4Address("10.0.0.1"), port=8088)
SWITCH_CHANGE = wire.SwitchChange(switch="s1", flows_added=2, bundled=True, seconds=0.01)
SWITCH_PORT = wire.SwitchPort(number=1, name="s1-eth1", up=True)
SWITCH_STATUS = wire.SwitchStatus(
    switch="s1",
    datapath_id="0000000000000001",
    connected=True,
    settled=False,
    ports=(SWITCH_PORT,),
    trouble="the table is full",
)
OBSERVED_LINK = wire.ObservedLink(from_="s1", from_port="s1-eth1", to="s2", to_port="s2-eth2")
HOST_PLACE = wire.HostLocation(
    hardware_address="00:00:00:00:00:0a",
    address=IPv4Address("10.0.0.10"),
    switch="s1",
    port="s1-eth2",
)
FLOW_COUNTERS = wire.FlowCounters(
    subscriber="command", flow=2, packets=10, bytes=1000, packets_per_second=1.5
)
QUEUE_COUNTERS = wire.QueueCounters(port="s1-eth1", priority=0, packets=10, bytes=1000)
PORT_COUNTERS = wire.PortCounters(
    port="s1-eth1", sent_packets=1, sent_bytes=100, received_packets=2, received_bytes=200
)
SWITCH_STATISTICS = wire.SwitchStatistics(
    switch="s1",
    window_seconds=2.0,
    flows=(FLOW_COUNTERS,),
    queues=(QUEUE_COUNTERS,),
    ports=(PORT_COUNTERS,),
)
TOPIC_COUNT = wire.TopicCount(
    topic="smoke/1", offered_events=10, delivered_events=9, missing_events=1, payload_bytes=459
)
SUBSCRIPTION = wire.Subscription(
    filter="smoke/+", utility=wire.LogUtility(weight=2.0), qos=1, deadline_seconds=0.5
)
PUBLICATION = wire.Publication(topic="smoke/1", rate_per_second=2.5, arrivals="periodic")
BUFFER = wire.Buffer(kind="per-class-head-drop", packets=100)
SWITCH = wire.Switch(id="s1", bandwidth_bits_per_second=1e6, buffer=BUFFER, error_rate=0.01)
LINK = wire.Link(from_="s1", to="s2", bandwidth_bits_per_second=5e5)
FORWARDED = wire.ForwardedTopic(from_broker="b2", topic="smoke/1", rate_per_second=3.0)
BROKER = wire.Broker(id="b1", in_events_per_second=800.0, switch="s1", forwarded=(FORWARDED,))
OVERCOMMITMENT = wire.Overcommitment(
    switch="s1",
    queue="s1 to hosts",
    role="crew",
    reserved=0.5,
    available=0.25,
    excess=0.25,
    excess_bits_per_second=2.5e5,
)
UNMET_DEADLINE = wire.UnmetDeadline(
    subscriber="command",
    filter="smoke/#",
    deadline_seconds=0.5,
    percentile=0.95,
    reason="late",
    delay_seconds=0.75,
    late_by_seconds=0.25,
)
NOTIFICATION_COUNTS = wire.NotificationCounts(
    delivered=90,
    dropped_at_gateway=7,
    dropped_at_meter=1,
    dropped_at_buffer=2,
    lost_on_link=0,
)
SIMULATED: dict[str, Any] = {
    "priority": 0,
    "success_rate": 0.9,
    "success_rate_half_width": 0.01,
    "delay_mean_seconds": 0.01,
    "delay_mean_half_width_seconds": 0.001,
    "delay_p50_seconds": 0.008,
    "delay_p95_seconds": 0.03,
    "delay_p95_half_width_seconds": 0.002,
    "delay_p99_seconds": 0.05,
    "timely_fraction": None,
}
SIMULATED_SUBSCRIPTION = wire.SimulatedSubscription(
    subscriber="command", filter="smoke/#", flow=0, drop_rate=0.1, **SIMULATED
)
SIMULATED_CLASS = wire.SimulatedClass(subscriptions=1, **SIMULATED)
SIMULATED_SWITCH = wire.SimulatedSwitch(id="s1", utilization=0.9)
SIMULATED_QUEUE = wire.SimulatedQueue(id="s1 to hosts", utilization=0.9, waiting_packets=4.5)
WHEN = datetime(2025, 3, 1, 12, tzinfo=UTC)
FILTER_INTEREST = wire.FilterInterest(filter="smoke/#", qos=1, clients=3)

EXAMPLES: tuple[Any, ...] = (
    CLASS_QUEUE,
    SHAPED_PORT,
    PACKET_LIMIT,
    FLOW_RULE,
    DESIRED_SWITCH,
    CONTROL_ENDPOINT,
    wire.DesiredNetwork(
        configuration_version=3, switches=(DESIRED_SWITCH,), control=(CONTROL_ENDPOINT,)
    ),
    SWITCH_CHANGE,
    wire.NetworkChange(configuration_version=3, seconds=0.02, switches=(SWITCH_CHANGE,)),
    SWITCH_PORT,
    SWITCH_STATUS,
    OBSERVED_LINK,
    HOST_PLACE,
    wire.NetworkTopology(switches=(SWITCH_STATUS,), links=(OBSERVED_LINK,), hosts=(HOST_PLACE,)),
    FLOW_COUNTERS,
    QUEUE_COUNTERS,
    PORT_COUNTERS,
    SWITCH_STATISTICS,
    wire.NetworkStatistics(switches=(SWITCH_STATISTICS,)),
    ENDPOINTS,
    FLOW,
    SUBSCRIPTION_PREDICTION,
    CLASS_PREDICTION,
    SWITCH_PREDICTION,
    QUEUE_PREDICTION,
    PREDICTION,
    TOPIC_COUNT,
    SUBSCRIPTION,
    PUBLICATION,
    BUFFER,
    SWITCH,
    LINK,
    FORWARDED,
    BROKER,
    wire.Assignment(subscriber="command", filter="smoke/#", flow=1, priority=2, drop_rate=0.5),
    wire.CappedUtility(weight=1.0, enough=0.5),
    wire.Configuration(
        version=3,
        broker="b1",
        created_at=WHEN,
        reason="a crew arrived",
        flows=(FLOW,),
        prediction=PREDICTION,
    ),
    wire.DeliveryRecord(
        run="run-1",
        broker="b1",
        publication_id="p0/17",
        topic="smoke/1",
        publisher="p0",
        subscriber="command",
        filter="smoke/#",
        flow=0,
        priority=0,
        configuration_version=3,
        wire_bytes=100,
        published_at_seconds=1.0,
        received_at_seconds=1.25,
        outcome="delivered",
    ),
    wire.Heartbeat(part="b1", kind="broker", started_at=WHEN, sent_at=WHEN),
    wire.PlannedTopicRate(topic="smoke/1", rate_per_second=2.0),
    wire.SecurityEvent(
        part="gateway",
        kind="policed-topic",
        subject="alarm/noise",
        count=12,
        first_at=WHEN,
        last_at=WHEN,
    ),
    wire.LinearUtility(weight=1.0),
    wire.LogUtility(weight=2.0),
    wire.Network(switches=(SWITCH,), links=(LINK,), broker=BROKER),
    wire.PiecewiseLinearUtility(weight=1.0, points=((0.0, 0.0), (0.5, 0.8), (1.0, 1.0))),
    wire.Planning(
        flows_per_subscriber=4,
        rho_tolerance=0.2,
        drop_policy="flat",
        ranking="global",
        split="optimal",
        seed=7,
        reserved_budgets=(wire.ReservedBudget(role="crew", share=0.25),),
    ),
    OVERCOMMITMENT,
    wire.PlanReport(
        priority_policy="bandwidth-adjusted",
        drop_policy="optimized",
        ranking="global",
        split="optimal",
        solver="kkt",
        utility_gap=1e-12,
        split_gap=None,
        moved_subscriptions=3,
        kept_previous_flows=False,
        overcommitted=(OVERCOMMITMENT,),
        undropped_subscribers=("command",),
        unmet_deadlines=(UNMET_DEADLINE,),
    ),
    wire.PowerUtility(weight=1.0, exponent=0.5),
    wire.ReservedBudget(role="crew", share=0.25),
    UNMET_DEADLINE,
    NOTIFICATION_COUNTS,
    SIMULATED_SUBSCRIPTION,
    SIMULATED_CLASS,
    SIMULATED_SWITCH,
    SIMULATED_QUEUE,
    wire.SimulationReport(
        replications=5,
        publications=50,
        notifications=NOTIFICATION_COUNTS,
        subscriptions=(SIMULATED_SUBSCRIPTION,),
        classes=(SIMULATED_CLASS,),
        switches=(SIMULATED_SWITCH,),
        queues=(SIMULATED_QUEUE,),
        utility=1.0,
        maximum_utility=2.0,
        achieved_utility_rate=0.5,
        achieved_utility_rate_per_subscription=0.5,
        timely_utility=0.5,
    ),
    FILTER_INTEREST,
    wire.InterestReport(instance="4f2a", version=7, unknown_sessions=1, filters=(FILTER_INTEREST,)),
    wire.Publisher(id="p0", switch="s0", publications=(PUBLICATION,), transport="tcp"),
    from_plain(Scenario, site()),
    wire.Statistics(
        reporter="gateway",
        subscriber="command",
        flow=0,
        configuration_version=3,
        window_start=WHEN,
        window_seconds=10.0,
        topics=(TOPIC_COUNT,),
        delay_mean_seconds=0.01,
        clock_offset_seconds=-0.002,
    ),
    wire.Subscriber(id="command", switch="s1", role="command", subscriptions=(SUBSCRIPTION,)),
    wire.SwitchCapabilities(
        switch="s1",
        datapath="userspace",
        priorities=8,
        meters=True,
        meter_packets_per_second=True,
        bundles=False,
    ),
    wire.PublisherRegistration(
        publisher=wire.Publisher(id="sensors", switch="s0"),
        topics=(wire.Topic(name="smoke/1", event_bytes=51),),
    ),
    wire.SubscriberRegistration(
        subscriber=wire.Subscriber(id="command", switch="s1"), address=IPv4Address("10.0.0.5")
    ),
    wire.Topic(name="smoke/1", event_bytes=51, size_distribution="exponential", stamped=True),
)
