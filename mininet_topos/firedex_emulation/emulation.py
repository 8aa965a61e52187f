"""Outside the sandbox: run a scenario in one way after the other, and measure each."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from firedex.scenario_file import read_scenario
from firedex_emulation.emulated_network import plan_network
from firedex_emulation.measurement import WayMeasurement
from firedex_emulation.run_journal import RunJournal
from firedex_emulation.sandbox import check_requirements, run_in_sandbox
from firedex_emulation.send_buffers import raise_send_buffers

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
    topology: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[WayMeasurement]:
    """Run ``source`` in each of ``ways`` with the same traffic; records go to ``out``, if given.

    ``report`` hears what is going on, ``tell`` what should be remembered.
    """
    # To refuse here, where it can be shown, what cannot run.
    plan = plan_network(read_scenario(source), topology)
    check_requirements()
    folder = str(out.resolve()) if out else ""
    measured = []
    with RunJournal(tell) as journal:
        trouble = raise_send_buffers(journal)
        for way in ways:
            report(
                f"{way}: {seconds:g} s of traffic on Open vSwitch ({plan.topology}), "
                f"controlled by {framework}"
            )
            arguments = [source, way, framework, str(seconds), str(seed), folder, plan.topology]
            printed = run_in_sandbox(
                "firedex_emulation.one_run",
                arguments,
                timeout_seconds=seconds + SET_UP_SECONDS,
                started=journal.note_process,
            )
            found = WayMeasurement.from_plain(json.loads(printed))
            notes = (*found.notes, *((trouble,) if trouble else ()))
            measured.append(replace(found, notes=notes))
    return measured
