"""The fake switch behaves like Open vSwitch: same messages, same replies, same state."""

import pytest

from tests.on_switches.runs import run_program

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def differences() -> dict[str, list[str]]:
    found: dict[str, list[str]] = run_program("fake_switch_comparison")
    return found


@pytest.mark.parametrize(
    "group", ["meters", "flows", "bundles", "frames", "made-up sequences", "full tables"]
)
def test_fake_switch_and_open_vswitch_do_not_differ(
    differences: dict[str, list[str]], group: str
) -> None:
    assert not differences[group], "\n".join(differences[group])
