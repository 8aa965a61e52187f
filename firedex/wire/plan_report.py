"""How a plan was made, what is proved of it, and what it could not do."""

from typing import Literal

from firedex.wire.mqtt_names import FilterName
from firedex.wire.scenario import DropPolicy, PriorityPolicy, Ranking, Split
from firedex.wire.values import Amount, Count, Flag, Identifier, Probability, value

__all__ = ["Overcommitment", "PlanReport", "Solver", "UnmetDeadline"]

Solver = Literal["kkt", "cvxpy"]


@value
class Overcommitment:
    """More at QoS 1 and 2 than may be reserved on a queue: what is over is served last.

    Loads are fractions of the bandwidth. ``role``: whose budget it is; none where the switch itself
    is too small for everybody's reservations together.
    """

    switch: Identifier
    queue: str
    role: Identifier | None
    reserved: Amount
    available: Amount
    excess: Amount
    excess_bits_per_second: Amount


@value
class UnmetDeadline:
    """A deadline that the plan does not meet, and what is predicted instead.

    ``late``: ``delay_seconds`` is that of the deadline's percentile. ``nothing-delivered``: all of
    it is dropped or lost. ``unstable``: a queue on its way grows without bound.
    """

    subscriber: Identifier
    filter: FilterName
    deadline_seconds: Amount
    percentile: Probability
    reason: Literal["late", "nothing-delivered", "unstable"]
    delay_seconds: Amount | None
    late_by_seconds: Amount | None


@value
class PlanReport:
    """How a plan was made and what it is worth.

    ``utility_gap``: by how much, relatively, other drop rates could be worth more (a proof, by
    duality); none where the policy does not optimise. ``split_gap``: the same of other cuts into
    flows. ``moved_subscriptions``: how many changed their flow since the previous plan; none
    without one.
    """

    priority_policy: PriorityPolicy
    drop_policy: DropPolicy
    ranking: Ranking
    split: Split
    solver: Solver | None
    utility_gap: Amount | None
    split_gap: Amount | None
    moved_subscriptions: Count | None
    kept_previous_flows: Flag
    overcommitted: tuple[Overcommitment, ...]
    undropped_subscribers: tuple[Identifier, ...]
    unmet_deadlines: tuple[UnmetDeadline, ...]
