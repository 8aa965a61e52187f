"""The dashboard against an emulation: real switches with counters, clients on their own hosts."""

from pathlib import Path

import pytest
from in_sandbox import experiment

from firedex.dashboard_browser import missing_browser


@pytest.mark.long
def test_switches_show_their_rules_queues_and_counters(tmp_path: Path) -> None:
    missing = missing_browser()
    if missing:
        pytest.skip(missing)
    seen = experiment("dashboard_look", str(tmp_path))
    assert seen["p95"].endswith("s")
    for part in ("gateway: well", "broker: well", "controller: well"):
        assert part in seen["health"]
    assert "rules as desired" in seen["rules"]
    assert "Rules and meters" in seen["rules"]
    assert "Queues" in seen["rules"]
    assert seen["errors"] == []
    assert seen["outside"] == []
