"""Conversion of wire types from and to JSON and plain Python data.

Requests are read strictly: an unknown key is an error that names the key. Responses are read with
``tolerant=True``, so that a newer peer may send keys that this version does not know.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from firedex.wire.errors import InvalidValue, Path, Problem
from firedex.wire.values import IDENTIFIER_RULE

__all__ = ["EncodedJson", "convert_errors", "from_json", "from_plain", "to_json", "to_plain"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EncodedJson:
    """A value that is already encoded as JSON, so that it is passed on without decoding it."""

    text: str


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(value_type: Any) -> TypeAdapter[Any]:
    if value_type not in _ADAPTERS:
        _ADAPTERS[value_type] = TypeAdapter(value_type)
    return _ADAPTERS[value_type]


def from_plain(value_type: type[T], data: object, *, tolerant: bool = False) -> T:
    """Return a value of the given type, made from dictionaries, lists and scalars."""
    try:
        result: T = _adapter(value_type).validate_python(
            data, extra="ignore" if tolerant else None, by_alias=True, by_name=False
        )
    except ValidationError as error:
        raise InvalidValue(convert_errors(error, value_type, data)) from error
    return result


def from_json(value_type: type[T], text: str | bytes, *, tolerant: bool = False) -> T:
    """Return a value of the given type, made from JSON."""
    try:
        result: T = _adapter(value_type).validate_json(
            text, extra="ignore" if tolerant else None, by_alias=True, by_name=False
        )
    except ValidationError as error:
        raise InvalidValue(convert_errors(error, value_type, _load_json_or_none(text))) from error
    return result


def _load_json_or_none(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def to_plain(value: object) -> Any:
    """Return ``value`` as dictionaries, lists and scalars that JSON can represent."""
    return _adapter(type(value)).dump_python(value, mode="json", by_alias=True)


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON text."""
    return _adapter(type(value)).dump_json(value, indent=indent, by_alias=True).decode()


def convert_errors(error: ValidationError, value_type: type[Any], data: object) -> list[Problem]:
    """Convert pydantic's errors to problems whose paths exist in ``data``."""
    return [
        Problem(path=_path_in(data, details["loc"]), message=_message(details, value_type))
        for details in error.errors(include_url=False)
    ]


def _path_in(data: object, loc: Path) -> Path:
    """Return ``loc`` without the steps that pydantic adds for the chosen member of a union."""
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


def _message(details: ErrorDetails, value_type: type[Any]) -> str:
    kind, text = details["type"], details["msg"]
    if kind == "unexpected_keyword_argument":
        return _unknown_key(str(details["loc"][-1]), _keys_at(value_type, details["loc"][:-1]))
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
        value = details["input"]
        return f"{value!r} is a string in YAML; write the number as {float(value):.12g}"
    if kind == "union_tag_not_found":
        return "needs a 'kind': one of log, linear, capped, piecewise-linear and power"
    if kind == "string_pattern_mismatch":
        return f"{details['input']!r} is not an identifier: {IDENTIFIER_RULE}"
    text = text.removeprefix("Value error, ").replace("Input should be", "must be")
    value = details["input"]
    if text.startswith("must be") and isinstance(value, str | int | float | bool):
        text += f", not {value!r}"
    return text


def _reads_as_number(value: object) -> bool:
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def _unknown_key(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    if close:
        return f"unknown key {key!r}; did you mean {close[0]!r}?"
    return f"unknown key {key!r}" + (f"; known are {', '.join(known)}" if known else "")


def _keys_at(annotation: Any, loc: Path) -> list[str]:
    """Return the keys that the type at ``loc`` below ``annotation`` accepts."""
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


def _tag(value_type: Any) -> object:
    """Return the ``kind`` that identifies a member of a union."""
    kind = getattr(value_type, "__pydantic_fields__", {}).get("kind")
    return kind.default if kind else None


def _external_name(value_type: Any, field_name: str) -> str:
    alias = value_type.__pydantic_fields__[field_name].alias
    return alias or field_name
