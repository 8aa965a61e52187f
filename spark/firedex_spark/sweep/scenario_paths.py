"""Change a scenario by the path of a value: ``network.switches.core.error_rate``. Pure.

Elements of lists are named by their ``id``, ``name``, ``topic`` or ``filter``; ``*`` selects all. A
name that contains a dot, a star or a quote is written in double quotes, with its own quotes
doubled: ``topics."a.b"``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from firedex.wire import InvalidValue, Scenario, from_plain, to_plain
from firedex_spark.errors import InvalidGrid

__all__ = ["join_path", "with_values"]

NAMES = ("id", "name", "topic", "filter")
ALL = "*"
STEP = re.compile(r'"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^."]+)')


def join_path(*steps: str) -> str:
    """Return the path of these names, quoted where needed."""
    return ".".join(_quote_step(step) for step in steps)


def _quote_step(step: str) -> str:
    plain = STEP.fullmatch(step) and not step.startswith('"') and ALL not in step
    return step if plain else '"' + step.replace('"', '""') + '"'


def with_values(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """Return the scenario with other values at these paths."""
    plain = {key: value for key, value in to_plain(scenario).items() if value is not None}
    for path, value in values.items():
        _set_value(plain, _steps(path), value, path)
    try:
        return from_plain(Scenario, plain)
    except InvalidValue as error:
        raise InvalidGrid(f"with {dict(values)}: {error}") from error


def _steps(path: str) -> list[str | None]:
    """Return the names of a path; None stands for ``*``."""
    steps: list[str | None] = []
    at = 0
    while True:
        found = STEP.match(path, at)
        if found is None or (found.end() < len(path) and path[found.end()] != "."):
            raise InvalidGrid(
                f"{path}: is not a valid path; example: network.switches.core.error_rate; "
                "write names with dots or quotes in double quotes"
            )
        quoted, plain = found["quoted"], found["plain"]
        if quoted is not None:
            steps.append(quoted.replace('""', '"'))
        else:
            steps.append(None if plain == ALL else plain)
        if found.end() == len(path):
            return steps
        at = found.end() + 1


def _set_value(parent: Any, steps: Sequence[str | None], value: Any, path: str) -> None:
    step, rest = steps[0], steps[1:]
    if isinstance(parent, list):
        for element in _select_elements(parent, step, path):
            if not rest:
                raise InvalidGrid(f"{path}: selects an element, not one of its values")
            _set_value(element, rest, value, path)
        return
    if not isinstance(parent, dict):
        raise InvalidGrid(f"{path}: a value has no key {step!r}")
    if step is None:
        raise InvalidGrid(f"{path}: * selects elements of a list, not values")
    if not rest:
        parent[step] = value
    elif step in parent:
        _set_value(parent[step], rest, value, path)
    else:
        raise InvalidGrid(f"{path}: unknown name {step!r}; known: {_some_names(parent)}")


def _select_elements(parent: list[Any], step: str | None, path: str) -> list[dict[str, Any]]:
    elements = [element for element in parent if isinstance(element, dict)]
    found = [e for e in elements if step is None or step in [e.get(name) for name in NAMES]]
    if not found:
        names = [next((e[n] for n in NAMES if n in e), "?") for e in elements]
        raise InvalidGrid(f"{path}: unknown name {step or ALL!r}; known: {_some_names(names)}")
    return found


def _some_names(names: Any) -> str:
    texts = [str(name) for name in names]
    return ", ".join(texts[:8]) + (", …" if len(texts) > 8 else "") if texts else "nothing"
