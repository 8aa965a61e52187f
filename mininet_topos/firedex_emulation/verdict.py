"""Whether a prediction held: by fixed bounds, and by what the measurement can tell at all. Pure."""

from firedex_emulation.measured_statistics import Estimate

__all__ = ["DELAY_SECONDS", "DELAY_SHARE", "SUCCESS", "verdict"]

DELAY_SHARE, DELAY_SECONDS = 0.2, 0.002
"""A mean delay agrees within a share of what was measured, or within so many seconds."""
SUCCESS = 0.03


def verdict(
    success: Estimate | None,
    success_predicted: float | None,
    delay: Estimate | None,
    delay_predicted: float | None,
) -> str:
    """``agrees``; ``too short a run`` where the interval is wider than the bounds and holds the
    prediction; what is off, where it is; ``not predicted``."""
    if success is None or success_predicted is None:
        return "not predicted"
    words = [_judged("success", success, success_predicted, SUCCESS)]
    if delay is not None and delay_predicted is not None:
        bound = max(DELAY_SHARE * delay.mean, DELAY_SECONDS)
        words.append(_judged("delay", delay, delay_predicted, bound))
    elif delay is not None:
        words.append("no delay predicted")
    said = [word for word in words if word]
    return "; ".join(said) if said else "agrees"


def _judged(what: str, measured: Estimate, predicted: float, bound: float) -> str:
    off = predicted - measured.mean
    if abs(off) <= bound:
        return ""
    if measured.half_width is not None and abs(off) <= measured.half_width:
        return f"{what}: too short a run to tell"
    return f"{what} predicted too {'high' if off > 0 else 'low'}"
