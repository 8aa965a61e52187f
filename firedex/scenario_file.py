"""Scenario files: YAML in, a checked ``Scenario`` out, every mistake with its line."""

import json
from typing import Any

from firedex.built_in_scenarios import NoSuchScenario, built_in_scenarios, drawn_scenario
from firedex.wire import InvalidValue, Scenario, from_plain
from firedex.yaml_file import FileProblem, InvalidFile, UnreadableFile, parse_yaml, read_text

__all__ = [
    "FileProblem",
    "InvalidScenarioFile",
    "ScenarioFileError",
    "read_scenario",
]

BUILT_IN = "builtin:"


class ScenarioFileError(Exception):
    """A scenario file that cannot be read."""


class InvalidScenarioFile(InvalidFile, ScenarioFileError):
    """A scenario file with mistakes, all of them."""


def read_scenario(source: str) -> Scenario:
    """Read a scenario from a file, or a built-in one from ``builtin:NAME``."""
    if source.startswith(BUILT_IN):
        try:
            drawn = drawn_scenario(source.removeprefix(BUILT_IN))
        except NoSuchScenario as error:
            raise ScenarioFileError(str(error)) from error
        if drawn is not None:
            return drawn
    return _parse(source, _text(source))


def _text(source: str) -> str:
    if source.startswith(BUILT_IN):
        name = source.removeprefix(BUILT_IN)
        known = built_in_scenarios()
        if name not in known:
            raise ScenarioFileError(
                f"there is no built-in scenario {name!r}; there are {', '.join(known)}"
            )
        return known[name].text
    try:
        return read_text(source)
    except UnreadableFile as error:
        raise ScenarioFileError(str(error)) from error


def _parse(source: str, text: str) -> Scenario:
    if text.lstrip().startswith("{") and (quick := _parse_json(text)) is not None:
        return quick
    try:
        return parse_yaml(
            Scenario, source, text, expected="a scenario is a mapping: name, topics, …"
        )
    except InvalidFile as error:
        raise InvalidScenarioFile(source, error.problems) from error


def _parse_json(text: str) -> Scenario | None:
    """A right scenario from JSON, fast; None sends whatever is wrong the way that knows lines."""
    try:
        return from_plain(Scenario, json.loads(text, object_pairs_hook=_without_doubles))
    except (ValueError, RecursionError, InvalidValue):
        return None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is given twice")
    return made
