"""The optimal cut into flows beside all the cuts there are."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from random_problems import random_utility
from small_site import published, site, topic

from firedex.planning import Plan, plan_scenario
from firedex.planning.bandwidth import allocation_problem, solve
from firedex.planning.flow_split import FlowSplit
from firedex.wire import Scenario, from_plain, to_plain
from firedex_models.demand import compile_demand
from firedex_models.downlink_loads import downlink_loads
from firedex_models.inbound import travel_to_broker
from firedex_models.site import Flows, assign


def drawn(seed: int, wanted: list[int], flows: int, kinds: list[str]) -> Scenario:
    """Subscribers with so many subscriptions each, on a link that carries half of it."""
    random = np.random.default_rng(seed)
    names = [f"t/{n}" for n in range(max(wanted))]
    rates = {name: float(random.uniform(1, 20)) for name in names}
    document = site(
        topics=[topic(name, int(random.integers(20, 500))) for name in names],
        publishers=[published("p0", rates)],
        subscribers=[
            {
                "id": f"s{who}",
                "switch": "s1",
                "subscriptions": [
                    {"filter": name, "utility": to_plain(random_utility(random, kinds))}
                    for name in names[:count]
                ],
            }
            for who, count in enumerate(wanted)
        ],
        planning={"flows_per_subscriber": flows, "drop_policy": "optimized"},
    )
    del document["assignment"]
    offered = sum(
        rates[name] * 8 * (document["topics"][n]["event_bytes"] + 49)
        for count in wanted
        for n, name in enumerate(names[:count])
    )
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = offered / 2
    return from_plain(Scenario, document)


def cuts_of(count: int, parts: int) -> list[list[int]]:
    """All ways to cut a list into at most so many runs."""
    found = []
    for cuts in range(min(parts, count)):
        for places in combinations(range(1, count), cuts):
            bounds = [0, *places, count]
            found.append(
                [p for p in range(len(bounds) - 1) for _ in range(bounds[p], bounds[p + 1])]
            )
    return found


def best_of_all(scenario: Scenario, ranked: list[list[int]]) -> float:
    """The utility of the best cut, by trying them all; ``ranked``: rows of each subscriber."""
    demand = compile_demand(scenario)
    inbound = travel_to_broker(scenario)
    most = scenario.planning.flows_per_subscriber
    best = 0.0
    for choice in product(*(cuts_of(len(rows), most) for rows in ranked)):
        flow = np.empty(len(demand.subscriptions), dtype=np.int64)
        owners: list[int] = []
        for who, (rows, parts) in enumerate(zip(ranked, choice, strict=True)):
            flow[rows] = np.array(parts) + len(owners)
            owners += [who] * (max(parts) + 1)
        nothing = np.zeros(len(owners), dtype=np.int64)
        flows = Flows(
            subscriber=np.array(owners),
            number=nothing,
            priority=nothing,
            drop_rate=np.zeros(len(owners)),
            at_meter=np.zeros(len(owners), dtype=bool),
        )
        made = assign(demand, flow, flows)
        loads = downlink_loads(made, inbound)
        limit = np.full((len(made.downlinks.hops), 1), 1 - scenario.planning.rho_tolerance)
        nobody = np.zeros(len(owners), dtype=bool)
        split = FlowSplit(
            subscription_flow=flow,
            subscriber=flows.subscriber,
            number=flows.number,
            priority=flows.priority,
            kept=nobody,
            excessive=nobody,
        )
        best = max(best, solve(allocation_problem(made, loads, split, limit)).worth)
    return best


def ranking_of(scenario: Scenario) -> list[list[int]]:
    """Each subscriber's rows, best first, as a plan with a flow for each has them."""
    document = to_plain(scenario)
    document["planning"]["flows_per_subscriber"] = 64
    document["planning"]["priorities"] = 64
    document["network"]["switches"][1]["priorities"] = 64
    alone = plan_scenario(from_plain(Scenario, document), drop_policy="none")
    ranked, first = [], 0
    for subscriber in scenario.subscribers:
        count = len(subscriber.subscriptions)
        flow = [entry.flow for entry in alone.assignment[first : first + count]]
        ranked.append([first + int(row) for row in np.argsort(flow)])
        first += count
    return ranked


def plans(scenario: Scenario, **more: Any) -> tuple[Plan, Plan]:
    return (
        plan_scenario(scenario, split="equal", **more),
        plan_scenario(scenario, split="optimal", **more),
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("wanted", "flows"), [([12], 3), ([10], 2), ([7], 4), ([6, 6], 2), ([4, 4, 4], 2), ([5, 1], 3)]
)
def test_up_to_twelve_subscriptions_no_cut_is_better(
    seed: int, wanted: list[int], flows: int
) -> None:
    kinds = ["log"] if seed % 2 else ["log", "linear", "capped", "power", "piecewise-linear"]
    scenario = drawn(seed, wanted, flows, kinds)
    equal, optimal = plans(scenario)
    best = best_of_all(scenario, ranking_of(scenario))
    assert float(optimal.table.utility.sum()) == pytest.approx(best, rel=1e-9)
    assert float(optimal.table.utility.sum()) >= float(equal.table.utility.sum()) * (1 - 1e-9)
    assert optimal.report.split_gap == 0


@pytest.mark.parametrize("seed", range(5))
def test_beyond_that_the_gap_is_stated_and_true(seed: int) -> None:
    scenario = drawn(seed, [40, 30, 60], 5, ["log", "linear", "power"])
    equal, optimal = plans(scenario)
    with_a_flow_for_each = to_plain(scenario)
    with_a_flow_for_each["planning"]["flows_per_subscriber"] = 64
    unlimited = plan_scenario(from_plain(Scenario, with_a_flow_for_each))
    reached = float(optimal.table.utility.sum())
    assert optimal.report.split_gap is not None
    assert 0 <= optimal.report.split_gap < 0.05
    assert reached * (1 + optimal.report.split_gap) <= float(unlimited.table.utility.sum()) * (
        1 + 1e-9
    )
    assert reached >= float(equal.table.utility.sum()) * (1 - 1e-9)
    assert equal.report.split_gap is None


def test_a_cut_can_be_worth_a_lot_more_than_an_equal_one() -> None:
    # one dear subscription and five cheap ones in two flows: three and three, or one and five
    document = site(
        topics=[topic(f"t/{n}") for n in range(6)],
        publishers=[published("p0", {f"t/{n}": 10.0 for n in range(6)})],
        subscribers=[
            {
                "id": "command",
                "switch": "s1",
                "subscriptions": [
                    {
                        "filter": f"t/{n}",
                        "utility": {"kind": "linear", "weight": 1.0 if n else 100.0},
                    }
                    for n in range(6)
                ],
            }
        ],
        planning={"flows_per_subscriber": 2},
    )
    del document["assignment"]
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 8_000 / 0.9
    equal, optimal = plans(from_plain(Scenario, document))
    assert optimal.table.utility.sum() == pytest.approx(100.0)
    assert equal.table.utility.sum() == pytest.approx(102 / 3)


def test_where_filters_overlap_no_gap_is_claimed() -> None:
    document = site(planning={"flows_per_subscriber": 2})
    document["subscribers"][0]["subscriptions"] = [
        {"filter": name, "utility": {"kind": "log", "weight": 1.0}}
        for name in ("smoke/#", "smoke/1", "smoke/2", "+/1")
    ]
    del document["assignment"]
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 30_000.0
    equal, optimal = plans(from_plain(Scenario, document))
    assert optimal.report.split_gap is None
    assert optimal.table.utility.sum() >= equal.table.utility.sum() * (1 - 1e-9)


def test_what_is_reserved_several_times_over_is_counted_as_it_rides() -> None:
    linear = [2.84, 3.75, 0.72, 4.72, 1.1, 0.7]
    names = [f"t{n}" for n in range(6)]
    rates = dict(zip(names, [100.0, 200.0, 400.0, 200.0, 50.0, 400.0], strict=True))
    document = site(
        topics=[topic(name) for name in [*names, "q/1"]],
        publishers=[published("p0", {**rates, "q/1": 300.0})],
        planning={"flows_per_subscriber": 3, "priorities": 1},
    )
    del document["assignment"]
    document["subscribers"][0]["subscriptions"] = [
        {"filter": name, "utility": {"kind": "linear", "weight": weight}}
        for name, weight in zip(names, linear, strict=True)
    ] + [
        {"filter": name, "qos": 1, "utility": {"kind": "log", "weight": 1.0}}
        for name in ("q/1", "q/#", "q/+")
    ]
    scenario = from_plain(Scenario, document)
    optimal = plan_scenario(scenario, split="optimal")
    assert optimal.report.split_gap == 0
    # the same with the reserved events asked for once: nothing else has changed
    document["subscribers"][0]["subscriptions"] = document["subscribers"][0]["subscriptions"][:7]
    once = plan_scenario(from_plain(Scenario, document), split="optimal")
    worth = {row.filter: row.utility for row in optimal.table.rows()}
    alone = {row.filter: row.utility for row in once.table.rows()}
    assert sum(worth[n] for n in names) == pytest.approx(sum(alone[n] for n in names), rel=1e-9)


@pytest.mark.parametrize("policy", ["none", "flat", "deadline-aware"])
def test_a_proof_is_claimed_only_for_what_it_proves(policy: Any) -> None:
    scenario = drawn(1, [8], 3, ["log"])
    assert plan_scenario(scenario, split="optimal", drop_policy=policy).report.split_gap is None
