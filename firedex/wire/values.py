"""How every type of the contract is made: frozen, slotted, keyword-only, validated.

Also the scalar types they share. Numbers are strict: ``true`` is not 1 and ``"3"`` is not 3.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

__all__ = [
    "Amount",
    "Count",
    "Finite",
    "Flag",
    "Identifier",
    "Moment",
    "NonNegative",
    "Positive",
    "PositiveCount",
    "Priority",
    "Probability",
    "not_vanishing",
    "value",
]

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` a value of the contract."""
    config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)
    decorate: Callable[[type[T]], Any] = dataclass(
        frozen=True, slots=True, kw_only=True, config=config
    )
    made: type[T] = decorate(cls)
    return made


# Bounds far beyond any site keep every sum and product of the model finite.
LARGEST = 1e15
SMALLEST = 1e-12


def not_vanishing(number: float) -> float:
    """Refuse a number so small that dividing by it is as good as dividing by nothing."""
    if number < SMALLEST:
        raise ValueError(f"must be at least {SMALLEST:g}, not {number!r}")
    return number


Positive = Annotated[
    float,
    Field(strict=True, gt=0, le=LARGEST, allow_inf_nan=False),
    AfterValidator(not_vanishing),
]
NonNegative = Annotated[float, Field(strict=True, ge=0, le=LARGEST, allow_inf_nan=False)]
Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
"""What the model works out: finite, but free of the bounds on what is given."""
Finite = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**53)]
PositiveCount = Annotated[int, Field(strict=True, ge=1, le=2**53)]
Priority = Annotated[int, Field(strict=True, ge=0, le=63)]
Flag = Annotated[bool, Field(strict=True)]
Identifier = Annotated[
    str, Field(strict=True, min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]*$")
]


def _written_out(moment: object) -> object:
    if isinstance(moment, datetime) or (isinstance(moment, str) and ":" in moment):
        return moment
    raise ValueError("must be a date and time, such as 2026-01-31T12:00:00Z")


Moment = Annotated[datetime, BeforeValidator(_written_out, json_schema_input_type=datetime)]
"""A date and time, written out: numbers could be seconds or milliseconds of anything."""
