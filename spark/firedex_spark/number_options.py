"""Numbers on the command line."""

from math import isfinite
from typing import Any

import click

__all__ = ["Finite"]


class Finite(click.FloatRange):
    """A number; NaN, which no range refuses, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As click has it, and finite."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number
