"""What stands after the question mark, read strictly. Pure."""

import math
import re
from collections.abc import Iterable
from typing import Any, Protocol

from firedex.service.endpoints import BadRequest, Query

__all__ = ["IDENTIFIER", "LONGEST_WAIT_SECONDS", "WAIT", "read_query"]

IDENTIFIER = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9_.:@-]*$",
    "minLength": 1,
    "maxLength": 128,
}
LONGEST_WAIT_SECONDS = 30.0
WAIT = (
    Query(
        name="wait_seconds",
        about="Wait so long for the change to be in force; then the answer is 200.",
        schema={"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_SECONDS, "default": 0},
    ),
)


class Arguments(Protocol):
    """Names with one or more values each."""

    def keys(self) -> Iterable[str]:
        """All names."""

    def getlist(self, key: str) -> list[str]:
        """The values of one."""


def read_query(known: tuple[Query, ...], given: Arguments) -> dict[str, Any]:
    """The values of the known parameters; whatever else there is, is refused by name."""
    by_name = {query.name: query for query in known}
    unknown = sorted(set(given.keys()) - by_name.keys())
    if unknown:
        raise BadRequest(
            f"unknown parameter {unknown[0]!r}; known are {', '.join(by_name) or 'none'}"
        )
    values: dict[str, Any] = {}
    for name, query in by_name.items():
        texts = given.getlist(name)
        if not texts:
            if query.required:
                raise BadRequest(f"{name}: is required")
            continue
        if len(texts) > 1 and not query.many:
            raise BadRequest(f"{name}: is given {len(texts)} times")
        read = [_read(query, text) for text in texts]
        values[name] = read if query.many else read[0]
    return values


def _read(query: Query, text: str) -> Any:
    schema = query.schema
    kind = schema["type"]
    if kind == "string":
        if not schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", math.inf):
            raise BadRequest(f"{query.name}: has the wrong length")
        if not re.fullmatch(schema.get("pattern", ".*"), text, re.DOTALL):
            raise BadRequest(f"{query.name}: {text!r} must match {schema['pattern']}")
        return text
    try:
        number = int(text) if kind == "integer" else float(text)
    except ValueError as error:
        raise BadRequest(f"{query.name}: {text!r} is not a number") from error
    if not schema.get("minimum", -math.inf) <= number <= schema.get("maximum", math.inf):
        raise BadRequest(
            f"{query.name}: must be from {schema.get('minimum')} to {schema.get('maximum')}"
        )
    return number
