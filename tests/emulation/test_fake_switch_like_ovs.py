"""The fake switch does what Open vSwitch does: the same messages, the same answers and state."""

import json
from pathlib import Path

import pytest

from firedex_emulation.sandbox import run_in_sandbox

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def differences() -> dict[str, list[str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
        printed = run_in_sandbox("fake_switch_beside_ovs", [], timeout_seconds=120)
    found: dict[str, list[str]] = json.loads(printed)
    return found


@pytest.mark.parametrize(
    "group", ["meters", "flows", "bundles", "frames", "made-up sequences", "full tables"]
)
def test_no_difference(differences: dict[str, list[str]], group: str) -> None:
    assert not differences[group], "\n".join(differences[group])
