"""What switches can do, when their agents answer and when they do not."""

from types import SimpleNamespace
from typing import Any

from firedex_controller.agent import AgentUnreachable
from firedex_controller.capabilities import capabilities
from firedex_controller.settings import SwitchSettings

SESSION = {"has_meters": True, "has_packet_meters": True, "has_bundles": True}
SWITCHES = {
    "core": SwitchSettings(datapath_id=1, hosts_port="s1-eth1"),
    "roof": SwitchSettings(datapath_id=2, hosts_port="s2-eth1"),
    "yard": SwitchSettings(datapath_id=3, hosts_port="s3-eth1"),
}


class Agent:
    """An agent that knows one bridge, or is away."""

    def __init__(self, switch: SwitchSettings) -> None:
        self._switch = switch

    def bridges(self) -> list[Any]:
        if self._switch.datapath_id == 2:
            raise AgentUnreachable("http://10.0.0.9:8082", "connection refused")
        known = {"datapath_id": f"{1:016x}", "datapath": "userspace", "priorities": 16}
        return [SimpleNamespace(**known)]


def test_of_a_switch_whose_agent_is_away_nothing_is_said() -> None:
    sessions: Any = {name: SimpleNamespace(name=name, **SESSION) for name in SWITCHES}
    agent_of: Any = Agent
    found = {each.switch: each.priorities for each in capabilities(sessions, SWITCHES, agent_of)}
    assert found == {"core": 16, "yard": 1}  # the agent of yard answers, and does not know it
