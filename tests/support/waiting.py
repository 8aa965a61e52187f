"""Waiting for a condition in tests; there is no other `wait_until`, and no test sleeps instead."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_until"]

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None],
    description: str,
    timeout_seconds: float = 60.0,
    *,
    poll_seconds: float = 0.01,
) -> T:
    """Call ``condition`` until it returns a true value, and return that value.

    Fails with ``description`` after ``timeout_seconds``. The default suits a machine whose cores
    are all busy; the time that a test really takes does not depend on it.
    """
    deadline = time.monotonic() + timeout_seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"timeout of {timeout_seconds:g} s: {description}"
        time.sleep(poll_seconds)
    return value
