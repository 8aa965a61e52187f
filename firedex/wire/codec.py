"""JSON and plain data in and out of every type of the contract.

Strict on what others ask of us (an unknown key is refused by name); tolerant on what others answer
(``tolerant=True``), so that a newer peer may say more than we know.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from firedex.wire.errors import InvalidValue, Path, Problem

__all__ = ["from_json", "from_plain", "problems_of", "to_json", "to_plain"]

T = TypeVar("T")


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(of: Any) -> TypeAdapter[Any]:
    if of not in _ADAPTERS:
        _ADAPTERS[of] = TypeAdapter(of)
    return _ADAPTERS[of]


def from_plain(of: type[T], data: object, *, tolerant: bool = False) -> T:
    """Make a value of type ``of`` from dictionaries, lists and scalars."""
    try:
        made: T = _adapter(of).validate_python(
            data, extra="ignore" if tolerant else None, by_alias=True, by_name=False
        )
    except ValidationError as error:
        raise InvalidValue(problems_of(error, of, data)) from error
    return made


def from_json(of: type[T], text: str | bytes, *, tolerant: bool = False) -> T:
    """Make a value of type ``of`` from JSON."""
    try:
        made: T = _adapter(of).validate_json(
            text, extra="ignore" if tolerant else None, by_alias=True, by_name=False
        )
    except ValidationError as error:
        raise InvalidValue(problems_of(error, of, _parsed(text))) from error
    return made


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def to_plain(value: object) -> Any:
    """Dictionaries, lists and scalars that JSON can hold."""
    return _adapter(type(value)).dump_python(value, mode="json", by_alias=True)


def to_json(value: object, *, indent: int | None = None) -> str:
    """JSON text."""
    return _adapter(type(value)).dump_json(value, indent=indent, by_alias=True).decode()


def problems_of(error: ValidationError, of: type[Any], data: object) -> list[Problem]:
    """Say in our words what pydantic found, with paths that exist in ``data``."""
    return [
        Problem(path=_path_in(data, details["loc"]), message=_message(details, of))
        for details in error.errors(include_url=False)
    ]


def _path_in(data: object, loc: Path) -> Path:
    """Leave out the steps that pydantic adds for the chosen member of a union."""
    path: list[str | int] = []
    here = data
    for position, step in enumerate(loc):
        if isinstance(here, Mapping):
            if step not in here and position < len(loc) - 1:
                continue
            here = here.get(step)
        elif isinstance(here, list | tuple) and isinstance(step, int) and step < len(here):
            here = here[step]
        path.append(step)
    return tuple(path)


def _message(details: ErrorDetails, of: type[Any]) -> str:
    kind, text = details["type"], details["msg"]
    if kind == "unexpected_keyword_argument":
        return _unknown_key(str(details["loc"][-1]), _keys_at(of, details["loc"][:-1]))
    if kind in ("missing", "missing_keyword_only_argument", "missing_argument"):
        return "is required"
    if kind == "union_tag_invalid":
        return (
            f"unknown kind {details['ctx']['tag']!r}; known are {details['ctx']['expected_tags']}"
        )
    if kind == "tuple_type":
        return f"must be a list, not {details['input']!r}"
    if kind == "dataclass_type":
        return f"must be a mapping of keys and values, not {details['input']!r}"
    if kind == "float_type" and _reads_as_number(details["input"]):
        given = details["input"]
        return f"{given!r} is text to YAML; write the number out: {float(given):.12g}"
    if kind == "union_tag_not_found":
        return "needs a 'kind': log, linear, capped, piecewise-linear or power"
    if kind == "string_pattern_mismatch":
        return (
            f"{details['input']!r} is not an identifier: letters, digits and _ . : @ -, "
            "beginning with a letter or digit"
        )
    text = text.removeprefix("Value error, ").replace("Input should be", "must be")
    given = details["input"]
    if text.startswith("must be") and isinstance(given, str | int | float | bool):
        text += f", not {given!r}"
    return text


def _reads_as_number(given: object) -> bool:
    try:
        return isinstance(given, str) and float(given) is not None
    except ValueError:
        return False


def _unknown_key(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    if close:
        return f"unknown key {key!r}; did you mean {close[0]!r}?"
    return f"unknown key {key!r}" + (f"; known are {', '.join(known)}" if known else "")


def _keys_at(annotation: Any, loc: Path) -> list[str]:
    """The keys that the type at ``loc`` below ``annotation`` takes."""
    if get_origin(annotation) is Annotated:
        return _keys_at(get_args(annotation)[0], loc)
    if get_origin(annotation) in (Union, UnionType):
        members = get_args(annotation)
        tagged = [m for m in members if loc and _tag(m) == loc[0]]
        below = [_keys_at(m, loc[1:] if tagged else loc) for m in tagged or members]
        return next((keys for keys in below if keys), [])
    if get_origin(annotation) is tuple and loc:
        return _keys_at(get_args(annotation)[0], loc[1:])
    if not is_dataclass(annotation):
        return []
    names = {_external_name(annotation, field.name): field.name for field in fields(annotation)}
    if not loc:
        return list(names)
    hints = get_type_hints(annotation, include_extras=True)
    return _keys_at(hints.get(names.get(str(loc[0]), ""), None), loc[1:])


def _tag(of: Any) -> object:
    """The ``kind`` by which a member of a union is told from the others."""
    kind = getattr(of, "__pydantic_fields__", {}).get("kind")
    return kind.default if kind else None


def _external_name(of: Any, field_name: str) -> str:
    alias = of.__pydantic_fields__[field_name].alias
    return alias or field_name
