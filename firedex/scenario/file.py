"""Reading of scenario files; every mistake is reported with its line."""

import json
from typing import Any

from firedex.scenario.builtin import UnknownScenario, built_in_scenarios, generate_scenario
from firedex.scenario.yaml_file import (
    FileProblem,
    InvalidFile,
    UnreadableFile,
    parse_yaml,
    read_text,
)
from firedex.wire import InvalidValue, Scenario, from_plain

__all__ = [
    "FileProblem",
    "InvalidScenarioFile",
    "ScenarioFileError",
    "read_scenario",
    "scenario_warnings",
]

BUILT_IN = "builtin:"


class ScenarioFileError(Exception):
    """A scenario file cannot be read."""


class InvalidScenarioFile(InvalidFile, ScenarioFileError):
    """A scenario file is not valid; ``problems`` lists all mistakes."""


def read_scenario(source: str) -> Scenario:
    """Return the scenario of a file, or the built-in scenario of ``builtin:NAME``."""
    if source.startswith(BUILT_IN):
        try:
            generated = generate_scenario(source.removeprefix(BUILT_IN))
        except UnknownScenario as error:
            raise ScenarioFileError(str(error)) from error
        if generated is not None:
            return generated
    return _parse(source, _text(source))


def _text(source: str) -> str:
    if source.startswith(BUILT_IN):
        name = source.removeprefix(BUILT_IN)
        known = built_in_scenarios()
        if name not in known:
            raise ScenarioFileError(
                f"unknown built-in scenario {name!r}; known are {', '.join(known)}"
            )
        return known[name].text
    try:
        return read_text(source)
    except UnreadableFile as error:
        raise ScenarioFileError(str(error)) from error


def _parse(source: str, text: str) -> Scenario:
    if text.lstrip().startswith("{") and (parsed := _parse_json(text)) is not None:
        return parsed
    try:
        return parse_yaml(
            Scenario,
            source,
            text,
            expected="must be a mapping with the keys of a scenario: name, topics, …",
        )
    except InvalidFile as error:
        raise InvalidScenarioFile(source, error.problems) from error


def _parse_json(text: str) -> Scenario | None:
    """Return the scenario of valid JSON text, which is fast.

    None if anything is wrong: the YAML parser then reports the mistakes with their lines.
    """
    try:
        return from_plain(Scenario, json.loads(text, object_pairs_hook=_reject_duplicate_keys))
    except (ValueError, RecursionError, InvalidValue):
        return None


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate key")
    return result


def scenario_warnings(scenario: Scenario) -> list[str]:
    """Return sentences about what is valid but probably a mistake."""
    from firedex_models.topic_index import TopicIndex  # needs NumPy; reading a file does not

    published = {p.topic for publisher in scenario.publishers for p in publisher.publications}
    published |= {forwarded.topic for forwarded in scenario.network.broker.forwarded}
    names = [topic.name for topic in scenario.topics]
    unpublished = [name for name in names if name not in published]
    index = TopicIndex(names)
    warnings = [f"no publisher publishes {name!r}" for name in unpublished]
    for subscriber in scenario.subscribers:
        for subscription in subscriber.subscriptions:
            if not len(index.matching(subscription.filter)):
                warnings.append(f"{subscription.filter!r} of {subscriber.id!r} matches no topic")
    for switch in scenario.network.switches:
        shared = switch.buffer is not None and switch.buffer.kind == "shared-push-out"
        if shared and switch.guaranteed_bits_per_second:
            warnings.append(
                f"{switch.id!r}: guaranteed_bits_per_second is ignored with shared-push-out"
            )
        if not switch.managed and switch.in_packets_per_second is not None:
            warnings.append(
                f"{switch.id!r}: in_packets_per_second is ignored on an unmanaged switch"
            )
    roles = sorted({subscriber.role for subscriber in scenario.subscribers})
    for budget in scenario.planning.reserved_budgets:
        if scenario.subscribers and budget.role not in roles:
            warnings.append(
                f"no subscriber has the role {budget.role!r} of a reserved budget; roles are "
                + ", ".join(roles)
            )
    return warnings
