"""What an emulated network's links take by themselves: the delays they were built with. Pure.

A probe on the idle network takes this and what hosts and switches take; only the latter is host
time, since predictions know the former.
"""

from firedex.wire import Scenario
from firedex.wire.network_paths import switches_on_path
from firedex_emulation.scenario_layout import broker_switch

__all__ = ["propagation_from_publishers", "propagation_to_subscribers"]


def propagation_to_subscribers(scenario: Scenario) -> dict[str, float]:
    """Seconds from the broker to each subscriber: every switch on the way sends over a link."""
    return {
        subscriber.id: _sum(scenario, _way(scenario, subscriber.switch))
        for subscriber in scenario.subscribers
    }


def propagation_from_publishers(scenario: Scenario) -> dict[str, float]:
    """Seconds from each publisher to the broker; the broker's switch has the edge host beside it.

    (The model counts that switch's propagation once more there. Emulation does not.)
    """
    broker = broker_switch(scenario, "any")
    return {
        publisher.id: _sum(
            scenario,
            tuple(name for name in _way(scenario, publisher.switch) if name != broker),
        )
        for publisher in scenario.publishers
    }


def _way(scenario: Scenario, switch: str) -> tuple[str, ...]:
    links = [(link.from_, link.to) for link in scenario.network.links]
    return switches_on_path(links, scenario.network.broker.switch, switch)


def _sum(scenario: Scenario, way: tuple[str, ...]) -> float:
    of_switch = {s.id: s.propagation_seconds for s in scenario.network.switches}
    return sum(of_switch[name] for name in way)
