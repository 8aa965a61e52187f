"""How every type of the contract is made: frozen, slotted, keyword-only, validated.

Also the scalar types they share. Numbers are strict: ``true`` is not 1 and ``"3"`` is not 3.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

__all__ = [
    "Count",
    "Identifier",
    "NonNegative",
    "Positive",
    "PositiveCount",
    "Probability",
    "value",
]

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` a value of the contract."""
    config = ConfigDict(extra="forbid", populate_by_name=True)
    decorate: Callable[[type[T]], Any] = dataclass(
        frozen=True, slots=True, kw_only=True, config=config
    )
    made: type[T] = decorate(cls)
    return made


Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0)]
PositiveCount = Annotated[int, Field(strict=True, ge=1)]
Identifier = Annotated[
    str, Field(strict=True, min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]*$")
]
