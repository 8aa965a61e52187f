"""The benchmark of rules, on the fake switch and with few flows."""

import pytest

from firedex_emulation import rule_benchmark, rule_timings
from firedex_emulation.errors import CannotEmulate


def test_without_root_it_runs_on_the_fake_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_root() -> None:
        raise CannotEmulate("emulation needs root")

    monkeypatch.setattr(rule_benchmark, "check_requirements", no_root)
    monkeypatch.setattr(rule_timings, "NUMBERS_OF_FLOWS", (4, 12))
    told: list[str] = []
    result = rule_benchmark.rule_speed(told.append)
    assert told == ["rules: on the fake switch (emulation needs root)"]
    put, changed, taken = result.comparisons
    assert "12 flows" in put.left
    assert "4 flows" in put.right
    assert put.what.startswith("putting flows")
    assert changed.what.startswith("changing the class")
    assert taken.what.startswith("taking all flows away")
    assert min(comparison.left_value for comparison in result.comparisons) > 0


def test_every_other_flow_changes() -> None:
    before, after = rule_timings.flows_of(100), rule_timings.flows_of(100, changed=True)
    moved = [
        old.priority != new.priority
        for old, new in zip(before.switches[0].flows, after.switches[0].flows, strict=True)
    ]
    assert moved == [False, True] * 50
