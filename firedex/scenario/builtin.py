"""The scenarios that ship with FireDeX: files, and scenarios generated from parameters.

``builtin:high-rise`` is a file; ``builtin:table-2?seed=7&deadline_seconds=0.5`` is generated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import yaml

from firedex.wire import InvalidValue, Scenario, from_plain, to_plain

if TYPE_CHECKING:
    from firedex.scenario.prototype import Prototype
    from firedex.scenario.table_2 import Table2

__all__ = ["BuiltInScenario", "UnknownScenario", "built_in_scenarios", "generate_scenario"]

GENERATED = {
    "prototype": "The paper authors' prototype: 7 topics, 7 classes: ?subscribers=30&load=0.9&…",
    "table-2": "The paper's evaluation (Table 2), from a seed: ?seed=2&deadline_seconds=0.5&…",
}


class UnknownScenario(ValueError):
    """A built-in scenario has an unknown name or invalid parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInScenario:
    """A built-in scenario: a one-line description, and its text."""

    description: str
    read: Callable[[], str]

    @property
    def text(self) -> str:
        """The scenario as YAML, as a template for other scenarios."""
        return self.read()


def built_in_scenarios() -> dict[str, BuiltInScenario]:
    """Return the built-in scenarios by the NAME of ``builtin:NAME``."""
    folder = resources.files("firedex.scenario") / "builtin_files"
    files = sorted((item for item in folder.iterdir()), key=lambda item: item.name)
    scenarios = {}
    for item in files:
        if item.name.endswith(".yaml"):
            text = item.read_text("utf-8")
            description = text.splitlines()[0].lstrip("# ")
            name = item.name.removesuffix(".yaml")
            scenarios[name] = BuiltInScenario(description=description, read=_file_text(text))
    for name, description in GENERATED.items():
        scenarios[name] = BuiltInScenario(description=description, read=_generated_text(name))
    return scenarios


def generate_scenario(name: str) -> Scenario | None:
    """Return the scenario of ``name?parameter=value&…``, or ``None`` if ``name`` is a file's."""
    kind, _, query = name.partition("?")
    if kind not in GENERATED:
        if query:
            raise UnknownScenario(f"builtin:{kind} takes no parameters")
        return None
    parameters = {
        key: yaml.safe_load(value) for key, value in parse_qsl(query, keep_blank_values=True)
    }
    try:
        return from_plain(_generator(kind), parameters).scenario()
    except (InvalidValue, yaml.YAMLError) as error:
        raise UnknownScenario(f"builtin:{name}: {error}") from error


def _generator(kind: str) -> "type[Table2] | type[Prototype]":
    """Return the type whose values are the parameters of a generated scenario."""
    # Imported on use: they need NumPy, and reading a file does not.
    if kind == "prototype":
        from firedex.scenario.prototype import Prototype

        return Prototype
    from firedex.scenario.table_2 import Table2

    return Table2


def _file_text(text: str) -> Callable[[], str]:
    return lambda: text


def _generated_text(kind: str) -> Callable[[], str]:
    return lambda: _yaml_text(_generator(kind)().scenario())


def _yaml_text(scenario: Scenario) -> str:
    plain = {key: value for key, value in to_plain(scenario).items() if value is not None}
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return text
