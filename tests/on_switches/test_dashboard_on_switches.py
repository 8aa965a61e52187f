"""The dashboard during an emulation with real switches."""

from pathlib import Path

import pytest

from tests.on_switches.runs import run_program
from tests.support.browser import missing_browser_reason


@pytest.mark.long
def test_dashboard_shows_rules_queues_and_counters_of_real_switches(tmp_path: Path) -> None:
    missing = missing_browser_reason()
    if missing:
        pytest.skip(missing)
    texts = run_program("dashboard_look", str(tmp_path))
    assert texts["p95"].endswith("s")
    for part in ("gateway: healthy", "broker: healthy", "controller: healthy"):
        assert part in texts["health"]
    assert "rules as desired" in texts["rules"]
    assert "Rules and meters" in texts["rules"]
    assert "Queues" in texts["rules"]
    assert texts["errors"] == []
    assert texts["outside"] == []
