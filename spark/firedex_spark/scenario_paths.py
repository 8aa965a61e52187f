"""Changing a scenario by the path of a value: ``network.switches.core.error_rate``. Pure.

Elements of lists are named by their ``id``, ``name``, ``topic`` or ``filter``; ``*`` is all.
Names with dots are written in double quotes.
"""

import csv
from typing import Any

from firedex.wire import InvalidValue, Scenario, from_plain, to_plain
from firedex_spark.errors import BadGrid

__all__ = ["changed"]

NAMES = ("id", "name", "topic", "filter")


def changed(scenario: Scenario, values: dict[str, Any]) -> Scenario:
    """The scenario with other values at these paths."""
    plain = {key: value for key, value in to_plain(scenario).items() if value is not None}
    for path, value in values.items():
        steps = next(csv.reader([path], delimiter="."))
        _set(plain, steps, value, path)
    try:
        return from_plain(Scenario, plain)
    except InvalidValue as error:
        raise BadGrid(f"with {values}: {error}") from error


def _set(here: Any, steps: list[str], value: Any, path: str) -> None:
    step, rest = steps[0], steps[1:]
    if isinstance(here, list):
        found = [e for e in here if step == "*" or step in (e.get(n) for n in NAMES)]
        if not found:
            raise BadGrid(f"{path}: there is no {step!r}")
        for element in found:
            if not rest:
                raise BadGrid(f"{path}: names an element, not one of its values")
            _set(element, rest, value, path)
        return
    if not isinstance(here, dict):
        raise BadGrid(f"{path}: there is nothing below {step!r}")
    if not rest:
        here[step] = value
    elif step in here:
        _set(here[step], rest, value, path)
    else:
        raise BadGrid(f"{path}: there is no {step!r}")
