"""Outside the sandbox: run a scenario in one way after the other, and measure each."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from firedex.scenario_file import read_scenario
from firedex_emulation.measurement import WayMeasurement
from firedex_emulation.sandbox import run_in_sandbox
from firedex_emulation.trunk_topology import trunk_switch

__all__ = ["emulate_ways"]

SET_UP_SECONDS = 120.0


def emulate_ways(
    source: str,
    ways: Sequence[str],
    *,
    framework: str,
    seconds: float,
    seed: int,
    out: Path | None,
    report: Callable[[str], None],
) -> list[WayMeasurement]:
    """Run ``source`` in each of ``ways`` with the same traffic; records go to ``out``, if given."""
    trunk_switch(read_scenario(source))  # to refuse here, where it can be shown, what cannot run
    folder = str(out.resolve()) if out else ""
    measured = []
    for way in ways:
        report(f"{way}: {seconds:g} s of traffic on Open vSwitch, controlled by {framework}")
        arguments = [source, way, framework, str(seconds), str(seed), folder]
        printed = run_in_sandbox(
            "firedex_emulation.one_run", arguments, timeout_seconds=seconds + SET_UP_SECONDS
        )
        measured.append(WayMeasurement.from_plain(json.loads(printed)))
    return measured
