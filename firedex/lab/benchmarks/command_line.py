"""Start-up time of ``firedex --help`` compared with importing Click, which every run needs."""

import subprocess
import sys

from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Report, seconds_by_round

__all__ = ["start_up_time"]

ROUNDS = 15
HELP = (sys.executable, "-c", "from firedex.cli import main; main()", "--help")
IMPORT_CLICK = (sys.executable, "-c", "import click")


def start_up_time(report: Report) -> BenchmarkResult:
    """Compare ``firedex --help`` with ``python -c "import click"``: at most 4 times as long."""
    report("cli: starting both commands in turns")
    _run(HELP)  # fill the file cache
    rounds = tuple(seconds_by_round(ROUNDS, lambda: _run(HELP), lambda: _run(IMPORT_CLICK)))
    return BenchmarkResult(
        name="cli",
        comparisons=(
            Comparison(
                what="start-up time of the command line",
                left="firedex --help",
                left_value=min(help_seconds for help_seconds, _ in rounds),
                right='python -c "import click"',
                right_value=min(click_seconds for _, click_seconds in rounds),
                unit="s",
                at_most=4.0,
                rounds=tuple(
                    help_seconds / click_seconds for help_seconds, click_seconds in rounds
                ),
            ),
        ),
    )


def _run(command: tuple[str, ...]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
