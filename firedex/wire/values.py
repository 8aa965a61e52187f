"""The decorator of all wire types, and the scalar types that they share.

Wire types are frozen, slotted, keyword-only and validated. Numbers are strict: ``true`` is not 1
and ``"3"`` is not 3.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

__all__ = [
    "IDENTIFIER_MAX_LENGTH",
    "IDENTIFIER_PATTERN",
    "IDENTIFIER_RULE",
    "Amount",
    "Count",
    "Finite",
    "Flag",
    "Identifier",
    "NonNegative",
    "Positive",
    "PositiveCount",
    "Priority",
    "Probability",
    "Timestamp",
    "check_not_too_small",
    "is_identifier",
    "value",
]

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` a wire type."""
    config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)
    decorate: Callable[[type[T]], Any] = dataclass(
        frozen=True, slots=True, kw_only=True, config=config
    )
    decorated: type[T] = decorate(cls)
    return decorated


# Bounds far beyond any site keep every sum and product of the model finite.
MAX_NUMBER = 1e15
MIN_POSITIVE = 1e-12


def check_not_too_small(number: float) -> float:
    """Return ``number``, or raise ValueError if it is too small to be a divisor."""
    if number < MIN_POSITIVE:
        raise ValueError(f"must be at least {MIN_POSITIVE:g}, not {number!r}")
    return number


Positive = Annotated[
    float,
    Field(strict=True, gt=0, le=MAX_NUMBER, allow_inf_nan=False),
    AfterValidator(check_not_too_small),
]
NonNegative = Annotated[float, Field(strict=True, ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
"""A computed number: finite, but without the upper bound of input values."""
Finite = Annotated[float, Field(strict=True, ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**53)]
PositiveCount = Annotated[int, Field(strict=True, ge=1, le=2**53)]
Priority = Annotated[int, Field(strict=True, ge=0, le=63)]
Flag = Annotated[bool, Field(strict=True)]
IDENTIFIER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]*$"
IDENTIFIER_MAX_LENGTH = 128
IDENTIFIER_RULE = (
    "letters, digits and _ . : @ -, beginning with a letter or digit, at most 128 characters"
)
"""The rule in words, for error messages."""
Identifier = Annotated[
    str,
    Field(strict=True, min_length=1, max_length=IDENTIFIER_MAX_LENGTH, pattern=IDENTIFIER_PATTERN),
]


def is_identifier(text: str) -> bool:
    """Return whether ``text`` is a valid identifier."""
    return len(text) <= IDENTIFIER_MAX_LENGTH and re.fullmatch(IDENTIFIER_PATTERN, text) is not None


def _check_timestamp_text(timestamp: object) -> object:
    if isinstance(timestamp, datetime) or (isinstance(timestamp, str) and ":" in timestamp):
        return timestamp
    raise ValueError("must be a date and time, such as 2026-01-31T12:00:00Z")


Timestamp = Annotated[
    datetime, BeforeValidator(_check_timestamp_text, json_schema_input_type=datetime)
]
"""A date and time in ISO 8601 format; numbers are refused because their unit is unknown."""
