"""Changing a scenario by the path of a value: ``network.switches.core.error_rate``. Pure.

Elements of lists are named by their ``id``, ``name``, ``topic`` or ``filter``; ``*`` is all. A name
with a dot, a star or a quote in it goes in double quotes, its own quotes doubled: ``topics."a.b"``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from firedex.wire import InvalidValue, Scenario, from_plain, to_plain
from firedex_spark.errors import BadGrid

__all__ = ["changed", "path_of"]

NAMES = ("id", "name", "topic", "filter")
ALL = "*"
STEP = re.compile(r'"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^."]+)')


def path_of(*steps: str) -> str:
    """The path that leads there, whatever the names are."""
    return ".".join(_written(step) for step in steps)


def _written(step: str) -> str:
    plain = STEP.fullmatch(step) and not step.startswith('"') and ALL not in step
    return step if plain else '"' + step.replace('"', '""') + '"'


def changed(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """The scenario with other values at these paths."""
    plain = {key: value for key, value in to_plain(scenario).items() if value is not None}
    for path, value in values.items():
        _set(plain, _steps(path), value, path)
    try:
        return from_plain(Scenario, plain)
    except InvalidValue as error:
        raise BadGrid(f"with {dict(values)}: {error}") from error


def _steps(path: str) -> list[str | None]:
    """The names of a path; None is all of them."""
    steps: list[str | None] = []
    at = 0
    while True:
        found = STEP.match(path, at)
        if found is None or (found.end() < len(path) and path[found.end()] != "."):
            raise BadGrid(
                f"{path}: is no path, such as network.switches.core.error_rate; "
                "names with dots or quotes go in double quotes"
            )
        quoted, plain = found["quoted"], found["plain"]
        if quoted is not None:
            steps.append(quoted.replace('""', '"'))
        else:
            steps.append(None if plain == ALL else plain)
        if found.end() == len(path):
            return steps
        at = found.end() + 1


def _set(here: Any, steps: Sequence[str | None], value: Any, path: str) -> None:
    step, rest = steps[0], steps[1:]
    if isinstance(here, list):
        for element in _named(here, step, path):
            if not rest:
                raise BadGrid(f"{path}: names an element, not one of its values")
            _set(element, rest, value, path)
        return
    if not isinstance(here, dict):
        raise BadGrid(f"{path}: there is nothing below it that {step!r} could name")
    if step is None:
        raise BadGrid(f"{path}: * stands for the elements of a list, not for values")
    if not rest:
        here[step] = value
    elif step in here:
        _set(here[step], rest, value, path)
    else:
        raise BadGrid(f"{path}: there is no {step!r}, but {_some(here)}")


def _named(here: list[Any], step: str | None, path: str) -> list[dict[str, Any]]:
    elements = [element for element in here if isinstance(element, dict)]
    found = [e for e in elements if step is None or step in [e.get(name) for name in NAMES]]
    if not found:
        names = [next((e[n] for n in NAMES if n in e), "?") for e in elements]
        raise BadGrid(f"{path}: there is no {step or ALL!r}, but {_some(names)}")
    return found


def _some(names: Any) -> str:
    few = [str(name) for name in names]
    return ", ".join(few[:8]) + (", …" if len(few) > 8 else "") if few else "nothing"
