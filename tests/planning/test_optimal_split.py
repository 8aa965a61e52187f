"""The optimal split into flows, compared with all possible splits."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from firedex.planning import Plan, plan_scenario
from firedex.planning.drop_rates import allocation_problem, solve
from firedex.planning.flow_split import FlowSplit
from firedex.wire import Scenario, from_plain, to_plain
from firedex_models.broker import predict_uplinks
from firedex_models.downlink_loads import downlink_loads
from firedex_models.site import Flows, compile_demand, site_from_flows
from tests.planning.random_problems import random_utility
from tests.support.small_site import publisher_entry, site, topic

pytestmark = pytest.mark.slow


def random_scenario(
    seed: int, subscription_counts: list[int], flows: int, kinds: list[str]
) -> Scenario:
    """Draw subscribers with these numbers of subscriptions, on a link with a load of 2."""
    random = np.random.default_rng(seed)
    names = [f"t/{n}" for n in range(max(subscription_counts))]
    rates = {name: float(random.uniform(1, 20)) for name in names}
    document = site(
        topics=[topic(name, int(random.integers(20, 500))) for name in names],
        publishers=[publisher_entry("p0", rates)],
        subscribers=[
            {
                "id": f"s{subscriber}",
                "switch": "s1",
                "subscriptions": [
                    {"filter": name, "utility": to_plain(random_utility(random, kinds))}
                    for name in names[:count]
                ],
            }
            for subscriber, count in enumerate(subscription_counts)
        ],
        planning={"flows_per_subscriber": flows, "drop_policy": "optimized"},
    )
    del document["assignment"]
    offered = sum(
        rates[name] * 8 * (document["topics"][n]["event_bytes"] + 49)
        for count in subscription_counts
        for n, name in enumerate(names[:count])
    )
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = offered / 2
    return from_plain(Scenario, document)


def all_splits(count: int, parts: int) -> list[list[int]]:
    """Return all splits of a list into at most ``parts`` parts."""
    all_parts = []
    for splits in range(min(parts, count)):
        for places in combinations(range(1, count), splits):
            bounds = [0, *places, count]
            all_parts.append(
                [p for p in range(len(bounds) - 1) for _ in range(bounds[p], bounds[p + 1])]
            )
    return all_parts


def best_utility(scenario: Scenario, ranked: list[list[int]]) -> float:
    """Return the utility of the best of all splits; ``ranked``: rows of each subscriber."""
    demand = compile_demand(scenario)
    inbound = predict_uplinks(scenario)
    max_flows = scenario.planning.flows_per_subscriber
    best = 0.0
    for choice in product(*(all_splits(len(rows), max_flows) for rows in ranked)):
        flow = np.empty(len(demand.subscriptions), dtype=np.int64)
        owners: list[int] = []
        for subscriber, (rows, parts) in enumerate(zip(ranked, choice, strict=True)):
            flow[rows] = np.array(parts) + len(owners)
            owners += [subscriber] * (max(parts) + 1)
        zeros = np.zeros(len(owners), dtype=np.int64)
        flows = Flows(
            subscriber=np.array(owners),
            number=zeros,
            priority=zeros,
            drop_rate=np.zeros(len(owners)),
            at_meter=np.zeros(len(owners), dtype=bool),
        )
        cut_site = site_from_flows(demand, flow, flows)
        loads = downlink_loads(cut_site, inbound)
        limit = np.full((len(cut_site.downlinks.hops), 1), 1 - scenario.planning.rho_tolerance)
        no_flow = np.zeros(len(owners), dtype=bool)
        split = FlowSplit(
            subscription_flow=flow,
            subscriber=flows.subscriber,
            number=flows.number,
            priority=flows.priority,
            undroppable=no_flow,
            excessive=no_flow,
        )
        best = max(best, solve(allocation_problem(cut_site, loads, split, limit)).utility)
    return best


def ranked_rows(scenario: Scenario) -> list[list[int]]:
    """Return the rows of each subscriber in ranking order, from a plan with separate flows."""
    document = to_plain(scenario)
    document["planning"]["flows_per_subscriber"] = 64
    document["planning"]["priorities"] = 64
    document["network"]["switches"][1]["priorities"] = 64
    separate = plan_scenario(from_plain(Scenario, document), drop_policy="none")
    ranked, first = [], 0
    for subscriber in scenario.subscribers:
        count = len(subscriber.subscriptions)
        flow = [entry.flow for entry in separate.assignment[first : first + count]]
        ranked.append([first + int(row) for row in np.argsort(flow)])
        first += count
    return ranked


def equal_and_optimal_plans(scenario: Scenario, **options: Any) -> tuple[Plan, Plan]:
    return (
        plan_scenario(scenario, split="equal", **options),
        plan_scenario(scenario, split="optimal", **options),
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("subscription_counts", "flows"),
    [([12], 3), ([10], 2), ([7], 4), ([6, 6], 2), ([4, 4, 4], 2), ([5, 1], 3)],
)
def test_split_of_up_to_12_subscriptions_is_optimal(
    seed: int, subscription_counts: list[int], flows: int
) -> None:
    kinds = ["log"] if seed % 2 else ["log", "linear", "capped", "power", "piecewise-linear"]
    scenario = random_scenario(seed, subscription_counts, flows, kinds)
    equal, optimal = equal_and_optimal_plans(scenario)
    best = best_utility(scenario, ranked_rows(scenario))
    assert float(optimal.table.utility.sum()) == pytest.approx(best, rel=1e-9)
    assert float(optimal.table.utility.sum()) >= float(equal.table.utility.sum()) * (1 - 1e-9)
    assert optimal.report.split_gap == 0


@pytest.mark.parametrize("seed", range(5))
def test_reported_gap_of_larger_split_is_a_valid_bound(seed: int) -> None:
    scenario = random_scenario(seed, [40, 30, 60], 5, ["log", "linear", "power"])
    equal, optimal = equal_and_optimal_plans(scenario)
    document = to_plain(scenario)
    document["planning"]["flows_per_subscriber"] = 64
    unlimited = plan_scenario(from_plain(Scenario, document))
    utility = float(optimal.table.utility.sum())
    assert optimal.report.split_gap is not None
    assert 0 <= optimal.report.split_gap < 0.05
    assert utility * (1 + optimal.report.split_gap) <= float(unlimited.table.utility.sum()) * (
        1 + 1e-9
    )
    assert utility >= float(equal.table.utility.sum()) * (1 - 1e-9)
    assert equal.report.split_gap is None


def test_optimal_split_can_triple_utility_of_equal_split() -> None:
    # One subscription of high and five of low utility in two flows: 3 + 3, or 1 + 5.
    document = site(
        topics=[topic(f"t/{n}") for n in range(6)],
        publishers=[publisher_entry("p0", {f"t/{n}": 10.0 for n in range(6)})],
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
    equal, optimal = equal_and_optimal_plans(from_plain(Scenario, document))
    assert optimal.table.utility.sum() == pytest.approx(100.0)
    assert equal.table.utility.sum() == pytest.approx(102 / 3)


def test_no_gap_is_reported_for_overlapping_filters() -> None:
    document = site(planning={"flows_per_subscriber": 2})
    document["subscribers"][0]["subscriptions"] = [
        {"filter": name, "utility": {"kind": "log", "weight": 1.0}}
        for name in ("smoke/#", "smoke/1", "smoke/2", "+/1")
    ]
    del document["assignment"]
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 30_000.0
    equal, optimal = equal_and_optimal_plans(from_plain(Scenario, document))
    assert optimal.report.split_gap is None
    assert optimal.table.utility.sum() >= equal.table.utility.sum() * (1 - 1e-9)


def test_overlapping_reservations_count_once_in_optimal_split() -> None:
    linear = [2.84, 3.75, 0.72, 4.72, 1.1, 0.7]
    names = [f"t{n}" for n in range(6)]
    rates = dict(zip(names, [100.0, 200.0, 400.0, 200.0, 50.0, 400.0], strict=True))
    document = site(
        topics=[topic(name) for name in [*names, "q/1"]],
        publishers=[publisher_entry("p0", {**rates, "q/1": 300.0})],
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
    # Compare with a scenario in which the events are reserved only once.
    document["subscribers"][0]["subscriptions"] = document["subscribers"][0]["subscriptions"][:7]
    single = plan_scenario(from_plain(Scenario, document), split="optimal")
    utility = {row.filter: row.utility for row in optimal.table.rows()}
    separate = {row.filter: row.utility for row in single.table.rows()}
    assert sum(utility[n] for n in names) == pytest.approx(
        sum(separate[n] for n in names), rel=1e-9
    )


@pytest.mark.parametrize("policy", ["none", "flat", "deadline-aware"])
def test_split_gap_is_reported_for_optimized_policy_only(policy: Any) -> None:
    scenario = random_scenario(1, [8], 3, ["log"])
    assert plan_scenario(scenario, split="optimal", drop_policy=policy).report.split_gap is None
