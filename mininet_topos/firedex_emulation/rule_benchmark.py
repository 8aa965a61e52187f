"""``firedex bench rules``: how long a switch takes to its rules, from one PUT to the last barrier.

On a real Open vSwitch where there is root; else on the fake switch, which says so.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from firedex.benchmarks import BenchmarkResult, Comparison, Report
from firedex_emulation.errors import CannotEmulate
from firedex_emulation.rule_timings import CONTROLLER_PORT, Timing, time_rules
from firedex_emulation.sandbox import check_requirements, run_in_sandbox

__all__ = ["rule_speed"]

MOST_SECONDS = 300.0
MOST_GROWTH = 2.0
"""Ten times as many flows may cost each of them at most so many times as much."""
FAKE = [sys.executable, "-W", "ignore", "-m", "firedex_controller.fake_switch"]


def rule_speed(report: Report) -> BenchmarkResult:
    """100, 1 000 and 5 000 flows: put, half of them changed, and taken away again."""
    try:
        check_requirements()
    except CannotEmulate as reason:
        switch = f"the fake switch ({reason})"
        report(f"rules: on {switch}")
        timings = _on_fake()
    else:
        switch = "Open vSwitch"
        report(f"rules: on {switch}, in a sandbox")
        printed = run_in_sandbox("firedex_emulation.rule_timings", [], timeout_seconds=MOST_SECONDS)
        timings = [Timing(*row) for row in json.loads(printed)]
    return BenchmarkResult(
        name="rules",
        comparisons=tuple(_growth(small, large, switch) for small, large in _pairs(timings)),
    )


def _pairs(timings: list[Timing]) -> list[tuple[Timing, Timing]]:
    """The smallest number of flows beside each larger one, for each kind of change."""
    first: dict[str, Timing] = {}
    pairs = []
    for timing in timings:
        smallest = first.setdefault(timing.change, timing)
        if smallest is not timing:
            pairs.append((smallest, timing))
    return pairs


def _growth(small: Timing, large: Timing, switch: str) -> Comparison:
    def told(timing: Timing) -> str:
        return (
            f"{timing.flows} flows in {timing.seconds:.3f} s: "
            f"{timing.rules / timing.seconds:.0f} rules/s to the barrier"
        )

    return Comparison(
        what=f"{large.change}, on {switch}",
        left=told(large),
        left_value=1000 * large.seconds / large.flows,
        right=told(small),
        right_value=1000 * small.seconds / small.flows,
        unit="ms a flow",
        at_most=MOST_GROWTH,
    )


def _on_fake() -> list[Timing]:
    with tempfile.TemporaryDirectory() as folder:
        switch: list[subprocess.Popen[bytes]] = []

        def connect() -> None:
            command = [*FAKE, "--controller", f"127.0.0.1:{CONTROLLER_PORT}"]
            command += ["--switch", "core=0000000000000001", "--ports", "2"]
            switch.append(subprocess.Popen(command))

        try:
            return time_rules(Path(folder), connect)
        finally:
            for process in switch:
                process.kill()
                process.wait()
