"""Sums over groups of rows."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["group_sums"]


def group_sums(
    group: NDArray[np.int64], amount: NDArray[np.float64], groups: int
) -> NDArray[np.float64]:
    """Sum ``amount`` over the rows of each group, numbered from 0."""
    sums: NDArray[np.float64] = np.bincount(group, amount, minlength=groups).astype(
        np.float64, copy=False
    )
    return sums
