"""Delay and success of each class over time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firedex_emulation.delivery_ledger import Ledger
from firedex_emulation.observation import Observation

__all__ = ["SecondOfClass", "second_by_second"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOfClass:
    """Events published in one second, of one class; the delay is of those that came."""

    second: int
    priority: int
    sent: int
    delivered: int
    delay_mean_seconds: float | None


def second_by_second(owed: Sequence[Ledger], observation: Observation) -> tuple[SecondOfClass, ...]:
    """In order of time and class; seconds in which a class was owed nothing are left out."""
    if not owed:
        return ()
    published = np.concatenate([ledger.published for ledger in owed]) - observation.began_at
    delay = np.concatenate([ledger.delay for ledger in owed])
    priority = np.concatenate([ledger.priority for ledger in owed])
    second = np.floor(published).astype(np.int64)
    found = []
    for which in sorted(set(zip(second.tolist(), priority.tolist(), strict=True))):
        inside = (second == which[0]) & (priority == which[1])
        came = delay[inside & ~np.isnan(delay)]
        if which[1] >= 0:
            found.append(
                SecondOfClass(
                    second=which[0],
                    priority=which[1],
                    sent=int(inside.sum()),
                    delivered=len(came),
                    delay_mean_seconds=float(came.mean()) if len(came) else None,
                )
            )
    return tuple(found)
