"""Running scenarios as a user would, and looking for a run in which the machine kept still."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firedex.wire import Scenario, to_json

CALM_SECONDS = 0.15
MOST_RUNS = 3

Ways = dict[str, dict[str, Any]]


def emulated(scenario: Scenario | str, *options: str, out: Path | None = None) -> Ways:
    """What ``firedex emulate --json`` says, by way; its notes must be empty."""
    if isinstance(scenario, Scenario):
        assert out is not None
        out.mkdir(parents=True, exist_ok=True)
        source = out / "asked.json"
        source.write_text(to_json(scenario))
        scenario = str(source)
    command = [sys.executable, "-c", "from firedex.cli import main; main()", "emulate", scenario]
    command += [*options, "--json"]
    if out is not None:
        command += ["--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    ways = {way["way"]: way for way in json.loads(done.stdout)}
    assert all(way["notes"] == [] for way in ways.values()), ways
    return ways


def until_calm(run: Callable[[int], Ways], right: Callable[[Ways], object]) -> Ways:
    """Run, and again while the machine stood still and it shows; the last run, or the first right.

    A machine that stood still says nothing of the network. ``right`` is true if it did not matter.
    """
    for number in range(MOST_RUNS):
        ways = run(number)
        calm = all(way["stalled_seconds"] < CALM_SECONDS for way in ways.values())
        if calm or right(ways):
            break
    return ways


def by_class(way: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The rows of a way's classes."""
    return {row["priority"]: row for row in way["classes"]}
