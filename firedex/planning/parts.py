"""Cutting ranked lists into parts; where they cannot be equal, the first parts are larger."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["part_of"]

Integers = NDArray[np.int64]


def part_of(place: Integers, count: Integers, parts: Integers) -> Integers:
    """Which part of a list of ``count`` the item at ``place`` goes to; no part stays empty.

    Unequal parts differ by one, and the first are the larger: the higher classes are favoured
    (paper §4.2).
    """
    used = np.maximum(np.minimum(parts, count), 1)
    size, larger = count // used, count % used
    boundary = larger * (size + 1)
    behind = larger + (place - boundary) // np.maximum(size, 1)
    return np.where(place < boundary, place // (size + 1), behind)
