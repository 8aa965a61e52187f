"""Types of columns (NumPy arrays), and sums over groups of rows."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Booleans", "Floats", "Integers", "group_sums"]

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def group_sums(group: Integers, amount: Floats, groups: int) -> Floats:
    """Return the sum of ``amount`` over the rows of each group; groups are numbered from 0."""
    sums: Floats = np.bincount(group, amount, minlength=groups).astype(np.float64, copy=False)
    return sums
