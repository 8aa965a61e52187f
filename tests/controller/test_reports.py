"""Reports of the controller to the service."""

from types import SimpleNamespace
from typing import Any

from firedex_controller.agent import AgentUnreachable
from firedex_controller.agent.messages import BridgeReport
from firedex_controller.reports import CounterWindow, switch_capabilities
from firedex_controller.settings import SwitchSettings

SESSION = {"has_meters": True, "has_packet_meters": True, "has_bundles": True}
SWITCHES = {
    name: SwitchSettings(datapath_id=number)
    for number, name in enumerate(("core", "roof", "yard"), start=1)
}
BRIDGE = BridgeReport(
    name="br", datapath_id=f"{1:016x}", datapath="userspace", priorities=16, version="3.1.0"
)


class FakeAgent:
    """An agent that knows the bridge of the switch ``core``, or is unreachable."""

    def __init__(self, *, reachable: bool) -> None:
        self._reachable = reachable

    def bridges(self) -> list[BridgeReport]:
        if not self._reachable:
            raise AgentUnreachable("http://10.0.0.9:8082", "connection refused")
        return [BRIDGE]


def test_switch_with_unreachable_agent_has_no_capabilities() -> None:
    sessions: Any = {name: SimpleNamespace(name=name, **SESSION) for name in SWITCHES}
    agents = {name: FakeAgent(reachable=name != "roof") for name in SWITCHES}
    capabilities = switch_capabilities(sessions, SWITCHES, agents)
    # The agent of yard answers, but does not know its bridge.
    assert {each.switch: each.priorities for each in capabilities} == {"core": 16, "yard": 1}


def test_rates_are_averages_over_the_window() -> None:
    window = CounterWindow(seconds=10.0)
    for second in range(30):
        window.add(float(second), {"a": (100 * second, 7)})
    assert window.span_seconds == 10.0
    assert window.rates("a") == (100.0, 0.0)


def test_reset_counter_gives_no_negative_rate() -> None:
    window = CounterWindow(seconds=10.0)
    window.add(0.0, {"a": (1000,)})
    window.add(2.0, {"a": (10,), "b": (4,)})
    assert window.rates("a") == (5.0,)
    assert window.rates("b") == (2.0,)
