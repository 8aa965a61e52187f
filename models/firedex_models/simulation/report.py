"""The summary of a simulation as values of the contract."""

from typing import Any

import numpy as np

from firedex.wire import (
    NotificationCounts,
    SimulatedClass,
    SimulatedQueue,
    SimulatedSubscription,
    SimulatedSwitch,
    SimulationReport,
)
from firedex_models.simulation.batch import AT_BUFFER, AT_GATEWAY, AT_METER, DELIVERED, ON_LINK
from firedex_models.simulation.summary import GroupEstimates, SimulationSummary

__all__ = ["report_of"]


def report_of(summary: SimulationSummary) -> SimulationReport:
    """Everything that was measured."""
    fates = summary.fates.tolist()
    return SimulationReport(
        replications=len(summary.tallies),
        publications=sum(tally.publications for tally in summary.tallies),
        notifications=NotificationCounts(
            delivered=fates[DELIVERED],
            dropped_at_gateway=fates[AT_GATEWAY],
            dropped_at_meter=fates[AT_METER],
            dropped_at_buffer=fates[AT_BUFFER],
            lost_on_link=fates[ON_LINK],
        ),
        subscriptions=_subscriptions(summary),
        classes=_classes(summary),
        switches=_switches(summary),
        queues=_queues(summary),
        utility=summary.utility,
        maximum_utility=summary.maximum_utility,
        achieved_utility_rate=summary.achieved_utility_rate,
        achieved_utility_rate_per_subscription=summary.achieved_utility_rate_per_subscription,
        timely_utility=summary.timely_utility,
    )


def _subscriptions(summary: SimulationSummary) -> tuple[SimulatedSubscription, ...]:
    site, flows = summary.site, summary.site.flows
    rows = []
    for row, subscription in enumerate(site.subscriptions):
        flow = site.subscription_flow[row]
        rows.append(
            SimulatedSubscription(
                subscriber=site.scenario.subscribers[site.demand.subscriber[row]].id,
                filter=subscription.filter,
                flow=int(flows.number[flow]),
                priority=int(flows.priority[flow]),
                drop_rate=float(flows.drop_rate[flow]),
                **_figures(summary.subscriptions, row),
            )
        )
    return tuple(rows)


def _classes(summary: SimulationSummary) -> tuple[SimulatedClass, ...]:
    return tuple(
        SimulatedClass(
            priority=int(k),
            subscriptions=int((summary.priority == k).sum()),
            **_figures(summary.classes, int(k)),
        )
        for k in np.unique(summary.priority)
    )


def _figures(of: GroupEstimates, row: int) -> dict[str, Any]:
    return {
        "success_rate": _known(of.success_rate.mean[row]),
        "success_rate_half_width": _known(of.success_rate.half_width[row]),
        "delay_mean_seconds": _known(of.delay_mean_seconds.mean[row]),
        "delay_mean_half_width_seconds": _known(of.delay_mean_seconds.half_width[row]),
        "delay_p50_seconds": _known(of.delay_p50_seconds.mean[row]),
        "delay_p95_seconds": _known(of.delay_p95_seconds.mean[row]),
        "delay_p95_half_width_seconds": _known(of.delay_p95_seconds.half_width[row]),
        "delay_p99_seconds": _known(of.delay_p99_seconds.mean[row]),
        "timely_fraction": _known(of.timely_fraction.mean[row]),
    }


def _switches(summary: SimulationSummary) -> tuple[SimulatedSwitch, ...]:
    load = summary.hop_load()
    busiest = {switch.id: 0.0 for switch in summary.site.scenario.network.switches}
    for hop in [*summary.site.downlinks.hops, *summary.uplinks]:
        busiest[hop.switch.id] = max(busiest[hop.switch.id], load.get(hop.name, 0.0))
    return tuple(SimulatedSwitch(id=name, utilization=most) for name, most in busiest.items())


def _queues(summary: SimulationSummary) -> tuple[SimulatedQueue, ...]:
    load, waiting = summary.hop_load(), summary.hop_waiting()
    return tuple(
        SimulatedQueue(id=name, utilization=load[name], waiting_packets=waiting[name])
        for name in load
    )


def _known(figure: float) -> float | None:
    return float(figure) if np.isfinite(figure) else None
