"""Requirements of the tests on switches: root, the Debian packages, and for some a quiet machine.

Long tests measure delays on emulated switches. If other processes keep the cores busy, the figures
say nothing about FireDeX, so these tests are skipped with that reason.
"""

import time
from pathlib import Path

import pytest

from firedex_emulation.errors import RequirementsMissing
from firedex_emulation.testbed.sandbox import check_requirements

IDLE_FRACTION = 0.6
"""Part of the processor time that must be idle before a long test starts."""
WAIT_SECONDS = 60.0


@pytest.fixture(autouse=True, scope="session")
def _check_requirements() -> None:
    try:
        check_requirements()
    except RequirementsMissing as reason:
        pytest.skip(str(reason))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Wait before a long test until the cores are mostly idle; skip it if they stay busy."""
    if item.get_closest_marker("long") is None:
        return
    end = time.monotonic() + WAIT_SECONDS
    while (idle := _idle_fraction(2.0)) < IDLE_FRACTION:
        if time.monotonic() > end:
            pytest.skip(
                f"other processes keep the processor busy ({1 - idle:.0%} for {WAIT_SECONDS:g} s); "
                "this test measures delays and needs a quiet machine"
            )


def _idle_fraction(seconds: float) -> float:
    idle, total = _processor_ticks()
    time.sleep(seconds)  # the length of the measurement
    idle_after, total_after = _processor_ticks()
    return (idle_after - idle) / max(total_after - total, 1)


def _processor_ticks() -> tuple[int, int]:
    """Return the idle and the total processor time since boot (first line of /proc/stat)."""
    line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(field) for field in line.split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)
