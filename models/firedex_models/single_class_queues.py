"""Queues without priorities: M/M/1, and the paper's multi-class FIFO as an option.

The exact multi-class FIFO queue (Pollaczek–Khinchine) is the priority queue with one class.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["mm1_delay", "paper_fifo_delay"]

Floats = NDArray[np.float64]


def mm1_delay(service_rate: Floats | float, arrival_rate: Floats | float) -> Floats:
    """Mean time in an M/M/1 queue, waiting and service (paper Eq. 3); infinite where unstable.

    The time is exponential, so its variance is the square of its mean.
    """
    spare = np.asarray(service_rate, dtype=float) - np.asarray(arrival_rate, dtype=float)
    with np.errstate(divide="ignore"):
        delay: Floats = np.where(spare > 0, 1.0 / np.maximum(spare, 0.0), np.inf)
    return delay


def paper_fifo_delay(service_seconds: Floats, utilization: Floats | float) -> Floats:
    """Mean time in a multi-class FIFO queue by the paper's Eq. 4: ``1 / (μ_r − μ_r Σ λ_i/μ_i)``.

    Right when all service times are equal and exponential; kept for comparison.
    """
    spare = 1.0 - np.asarray(utilization, dtype=float)
    with np.errstate(divide="ignore"):
        delay: Floats = np.where(spare > 0, service_seconds / np.maximum(spare, 0.0), np.inf)
    return delay
