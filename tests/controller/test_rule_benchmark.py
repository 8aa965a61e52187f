"""The rule benchmark, with few flows on the fake switch."""

import pytest

from firedex_emulation.errors import RequirementsMissing
from tests.benchmarks import switch_rules


def test_benchmark_without_root_runs_on_the_fake_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_root() -> None:
        raise RequirementsMissing("emulation needs root")

    monkeypatch.setattr(switch_rules, "check_requirements", no_root)
    monkeypatch.setattr(switch_rules, "NUMBERS_OF_FLOWS", (4, 12))
    progress: list[str] = []
    result = switch_rules.rule_speed(progress.append)
    assert progress == ["rules: on the fake switch (emulation needs root)"]
    added, changed, removed = result.comparisons
    assert "12 flows" in added.left
    assert "4 flows" in added.right
    assert added.what.startswith("adding all flows")
    assert changed.what.startswith("changing the class")
    assert removed.what.startswith("removing all flows")
    assert min(comparison.left_value for comparison in result.comparisons) > 0


def test_benchmark_changes_every_other_flow() -> None:
    before, after = switch_rules.network_with(100), switch_rules.network_with(100, changed=True)
    moved = [
        old.priority != new.priority
        for old, new in zip(before.switches[0].flows, after.switches[0].flows, strict=True)
    ]
    assert moved == [False, True] * 50
