"""Desired networks that contradict themselves."""

from dataclasses import replace

import pytest
from desired_examples import flow_rule, network, shaped_port

from firedex.wire import DesiredNetwork
from firedex_controller.errors import InvalidNetwork
from firedex_controller.network_check import check_network

GOOD = network(flow_rule(flow=0), flow_rule(flow=1, priority=1), ports=(shaped_port(2),))


def test_a_good_one_passes() -> None:
    check_network(GOOD)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (replace(GOOD, switches=GOOD.switches * 2), "switches: 'core' is there twice"),
        (network(ports=(shaped_port(2), shaped_port(3))), "core: ports: two lead to hosts"),
        (
            network(ports=(shaped_port(2, towards="s2"), shaped_port(3, towards="s2"))),
            "core: ports: two lead to 's2'",
        ),
        (
            network(flow_rule(flow=1), flow_rule(flow=1, first_port=30_000)),
            "flow 1 of crew is there twice",
        ),
        (
            network(flow_rule("crew"), flow_rule("command")),
            "flow 0 of crew and flow 0 of command have the same endpoints",
        ),
        (
            network(flow_rule(priority=5), ports=(shaped_port(2),)),
            "flow 0 of crew is in class 5, which no port of the switch has",
        ),
        (replace(GOOD, configuration_version=2**48), "configuration_version"),
    ],
)
def test_what_contradicts_itself_is_named(bad: DesiredNetwork, said: str) -> None:
    with pytest.raises(InvalidNetwork, match=said):
        check_network(bad)
