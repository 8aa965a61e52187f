"""What the links of an emulated network take, along every way."""

from pathlib import Path

import pytest

from firedex.scenario_file import read_scenario
from firedex_emulation.emulated_propagation import (
    propagation_from_publishers,
    propagation_to_subscribers,
)

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_building_takes_what_its_backbone_takes() -> None:
    scenario = read_scenario(str(EXAMPLES / "building.yaml"))
    down = propagation_to_subscribers(scenario)
    assert set(down) == {"command", "engine1", "engine2", "ladder1", "ladder2"}
    assert list(down.values()) == pytest.approx([0.001] * 5)
    assert propagation_from_publishers(scenario) == {"sensors": 0.0}
