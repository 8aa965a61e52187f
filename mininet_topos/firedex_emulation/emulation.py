"""Outside the sandbox: run a scenario in one way after the other, and measure each."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from firedex.scenario_file import read_scenario
from firedex_emulation.measurement import WayMeasurement, measure_way
from firedex_emulation.one_run import as_run
from firedex_emulation.sandbox import run_in_sandbox

__all__ = ["emulate_ways"]

SET_UP_SECONDS = 120.0


def emulate_ways(
    source: str,
    ways: Sequence[str],
    *,
    framework: str,
    seconds: float,
    seed: int,
    out: Path,
    report: Callable[[str], None],
) -> list[WayMeasurement]:
    """Run ``source`` in each of ``ways`` with the same traffic; records go to ``out``."""
    scenario = read_scenario(source)
    out.mkdir(parents=True, exist_ok=True)
    measured = []
    for way in ways:
        report(f"{way}: {seconds:g} s of traffic on Open vSwitch, controlled by {framework}")
        arguments = [source, way, framework, str(seconds), str(seed), str(out.resolve())]
        printed = run_in_sandbox(
            "firedex_emulation.one_run", arguments, timeout_seconds=seconds + SET_UP_SECONDS
        )
        measured.append(measure_way(as_run(scenario, way), json.loads(printed), out))
    return measured
