"""Helpers that run ``firedex emulate`` or a program of ``programs`` in a sandbox."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firedex.wire import Scenario, to_json
from firedex_emulation.testbed.sandbox import run_in_sandbox

MAX_STALL_SECONDS = 0.15
MAX_RUNS = 2
SANDBOX_TIMEOUT_SECONDS = 240.0

Modes = dict[str, dict[str, Any]]


def run_emulation(scenario: Scenario | str, *options: str, out: Path | None = None) -> Modes:
    """Return the output of ``firedex emulate --json`` by mode; its notes must be empty."""
    if isinstance(scenario, Scenario):
        assert out is not None
        out.mkdir(parents=True, exist_ok=True)
        source = out / "input.json"
        source.write_text(to_json(scenario))
        scenario = str(source)
    command = [sys.executable, "-c", "from firedex.cli import main; main()", "emulate", scenario]
    command += [*options, "--json"]
    if out is not None:
        command += ["--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    modes = {mode["mode"]: mode for mode in json.loads(done.stdout)}
    assert all(mode["notes"] == [] for mode in modes.values()), modes
    return modes


def run_without_stalls(
    run: Callable[[int], Modes], is_acceptable: Callable[[Modes], object]
) -> Modes:
    """Repeat ``run`` until the machine did not stall or the result is acceptable.

    Results of a run in which the machine stalled say nothing about the network: if it stalled in
    every run, the test is skipped.
    """
    for number in range(MAX_RUNS):
        modes = run(number)
        stalled_seconds = max(mode["stalled_seconds"] for mode in modes.values())
        if stalled_seconds < MAX_STALL_SECONDS or is_acceptable(modes):
            return modes
    raise skipped_after_stalls(stalled_seconds)


def skipped_after_stalls(stalled_seconds: float) -> BaseException:
    """Return the exception that skips a test because the machine stalled in each of its runs."""
    return pytest.skip.Exception(
        f"the machine stalled for {stalled_seconds:.2f} s in the last of {MAX_RUNS} runs, so the "
        "result says nothing about the network"
    )


def by_class(mode: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the rows of a mode by class."""
    return {row["priority"]: row for row in mode["classes"]}


def run_program(name: str, *arguments: str) -> Any:
    """Run the module ``programs.NAME`` in a sandbox; return the JSON that it printed, if any."""
    printed = run_in_sandbox(
        f"tests.on_switches.programs.{name}", arguments, timeout_seconds=SANDBOX_TIMEOUT_SECONDS
    )
    return json.loads(printed) if printed.strip() else None
