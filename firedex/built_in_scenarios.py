"""Scenarios that come along: files, and those that are drawn anew from parameters.

``builtin:high-rise`` is a file; ``builtin:table-2?seed=7&deadline_seconds=0.5`` is drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from urllib.parse import parse_qsl

import yaml

from firedex.prototype_site import Prototype
from firedex.table_2 import Table2
from firedex.wire import InvalidValue, Scenario, from_plain, to_plain

__all__ = ["BuiltInScenario", "NoSuchScenario", "built_in_scenarios", "drawn_scenario"]

Drawn = type[Table2] | type[Prototype]
DRAWN: dict[str, tuple[str, Drawn]] = {
    "prototype": (
        "The paper authors' prototype: 7 topics, 7 classes: ?subscribers=30&load=0.9&…",
        Prototype,
    ),
    "table-2": (
        "The paper's evaluation (Table 2), drawn from a seed: ?seed=2&deadline_seconds=0.5&…",
        Table2,
    ),
}


class NoSuchScenario(ValueError):
    """There is no built-in scenario of that name, or not with these parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInScenario:
    """A scenario that comes along: what it is about, and its text."""

    about: str
    read: Callable[[], str]

    @property
    def text(self) -> str:
        """YAML, to start one's own from."""
        return self.read()


def built_in_scenarios() -> dict[str, BuiltInScenario]:
    """The scenarios that come with FireDeX, by the NAME of ``builtin:NAME``."""
    folder = resources.files("firedex") / "scenarios"
    files = sorted((item for item in folder.iterdir()), key=lambda item: item.name)
    found = {}
    for item in files:
        if item.name.endswith(".yaml"):
            text = item.read_text("utf-8")
            about = text.splitlines()[0].lstrip("# ")
            name = item.name.removesuffix(".yaml")
            found[name] = BuiltInScenario(about=about, read=_text_of(text))
    for name, (about, kind) in DRAWN.items():
        found[name] = BuiltInScenario(about=about, read=_text_of_drawn(kind))
    return found


def drawn_scenario(name: str) -> Scenario | None:
    """The scenario of ``name?parameter=value&…`` if it is one that is drawn, else ``None``."""
    kind_name, _, query = name.partition("?")
    if kind_name not in DRAWN:
        if query:
            raise NoSuchScenario(f"builtin:{kind_name} takes no parameters")
        return None
    given = {key: yaml.safe_load(value) for key, value in parse_qsl(query, keep_blank_values=True)}
    try:
        return from_plain(DRAWN[kind_name][1], given).scenario()
    except (InvalidValue, yaml.YAMLError) as error:
        raise NoSuchScenario(f"builtin:{name}: {error}") from error


def _text_of(text: str) -> Callable[[], str]:
    return lambda: text


def _text_of_drawn(kind: Drawn) -> Callable[[], str]:
    return lambda: _yaml(kind().scenario())


def _yaml(scenario: Scenario) -> str:
    plain = {key: value for key, value in to_plain(scenario).items() if value is not None}
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return text
