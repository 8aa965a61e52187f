"""The one contract between FireDeX's parts: frozen, validated values, and JSON both ways.

Owns what crosses a process border and the scenario file's meaning. Knows nothing of queues, sockets
or storage, and needs pydantic alone. Units are in the names.
"""

from firedex.wire.codec import from_json, from_plain, to_json, to_plain
from firedex.wire.delivery_record import DeliveryRecord, Outcome
from firedex.wire.errors import InvalidValue, Problem, WireError, format_path
from firedex.wire.flows import Assignment, Configuration, EnforcementPoint, Flow, FlowEndpoints
from firedex.wire.network import (
    Broker,
    Buffer,
    ForwardedTopic,
    Link,
    Network,
    Switch,
    SwitchCapabilities,
)
from firedex.wire.plan_report import Overcommitment, PlanReport, Solver, UnmetDeadline
from firedex.wire.prediction import (
    ClassPrediction,
    Method,
    ModelName,
    Prediction,
    QueueKind,
    QueuePrediction,
    SubscriptionPrediction,
    SwitchPrediction,
)
from firedex.wire.registrations import PublisherRegistration, SubscriberRegistration
from firedex.wire.reports import Heartbeat, Statistics, TopicCount
from firedex.wire.rules import Meter, Queue, Rule, SwitchRules
from firedex.wire.scenario import (
    DropPolicy,
    Planning,
    PriorityPolicy,
    Ranking,
    ReservedBudget,
    Scenario,
    Split,
)
from firedex.wire.simulation_report import (
    NotificationCounts,
    SimulatedClass,
    SimulatedQueue,
    SimulatedSubscription,
    SimulatedSwitch,
    SimulationReport,
)
from firedex.wire.utility import (
    CappedUtility,
    LinearUtility,
    LogUtility,
    PiecewiseLinearUtility,
    PowerUtility,
    Utility,
)
from firedex.wire.workload import (
    Arrivals,
    Publication,
    Publisher,
    SizeDistribution,
    Subscriber,
    Subscription,
    Topic,
    Transport,
)

__all__ = [
    "Arrivals",
    "Assignment",
    "Broker",
    "Buffer",
    "CappedUtility",
    "ClassPrediction",
    "Configuration",
    "DeliveryRecord",
    "DropPolicy",
    "EnforcementPoint",
    "Flow",
    "FlowEndpoints",
    "ForwardedTopic",
    "Heartbeat",
    "InvalidValue",
    "LinearUtility",
    "Link",
    "LogUtility",
    "Meter",
    "Method",
    "ModelName",
    "Network",
    "NotificationCounts",
    "Outcome",
    "Overcommitment",
    "PiecewiseLinearUtility",
    "PlanReport",
    "Planning",
    "PowerUtility",
    "Prediction",
    "PriorityPolicy",
    "Problem",
    "Publication",
    "Publisher",
    "PublisherRegistration",
    "Queue",
    "QueueKind",
    "QueuePrediction",
    "Ranking",
    "ReservedBudget",
    "Rule",
    "Scenario",
    "SimulatedClass",
    "SimulatedQueue",
    "SimulatedSubscription",
    "SimulatedSwitch",
    "SimulationReport",
    "SizeDistribution",
    "Solver",
    "Split",
    "Statistics",
    "Subscriber",
    "SubscriberRegistration",
    "Subscription",
    "SubscriptionPrediction",
    "Switch",
    "SwitchCapabilities",
    "SwitchPrediction",
    "SwitchRules",
    "Topic",
    "TopicCount",
    "Transport",
    "UnmetDeadline",
    "Utility",
    "WireError",
    "format_path",
    "from_json",
    "from_plain",
    "to_json",
    "to_plain",
]
