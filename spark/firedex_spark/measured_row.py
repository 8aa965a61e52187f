"""A row of a validation: what was measured beside what was predicted, and the verdict. Pure."""

from dataclasses import dataclass

__all__ = ["ALARMS", "NOTHING_ARRIVED", "WRONG_CLOCK", "Bounds", "MeasuredRow"]

NOTHING_ARRIVED = "nothing arrived"
WRONG_CLOCK = "clock is wrong"
ALARMS = ("delay out of bounds", "success out of bounds", "drifts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the model states of itself.

    A mean delay is within ``delay`` of the prediction, relatively, or within ``delay_seconds``;
    a success rate within ``success``; over the time of a run a mean delay rises or falls by the
    part ``drift`` at most. ``level``: the probability of any false alarm in a report.
    """

    delay: float = 0.25
    delay_seconds: float = 0.002
    success: float = 0.05
    drift: float = 0.03
    level: float = 0.05

    def delay_allowed(self, predicted_seconds: float) -> float:
        """By how much a mean delay may be off."""
        return max(self.delay * predicted_seconds, self.delay_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A subscription, or a class (without subscriber and filter), measured and predicted.

    Half-widths are of 95 % intervals. ``success_rate``: None if records are of deliveries alone;
    ``timely_fraction`` is then of these.
    ``drift``: by what part the mean rises over the whole time; ``wanders``: it comes and goes too
    slowly for that to be told from chance.
    ``wrong_clocks``: how many subscribers' delays say nothing; a class is of the others.
    ``chance_…``: how likely as much is by chance alone; ``means``: batch means, for plots.
    """

    site: str
    configuration_version: int
    priority: int
    subscriber: str | None
    filter: str | None
    offered: int
    delivered: int
    success_rate: float | None = None
    success_rate_half_width: float | None = None
    delay_mean_seconds: float | None = None
    delay_mean_half_width_seconds: float | None = None
    delay_p50_seconds: float | None = None
    delay_p95_seconds: float | None = None
    delay_p95_half_width_seconds: float | None = None
    delay_p99_seconds: float | None = None
    timely_fraction: float | None = None
    timely_fraction_half_width: float | None = None
    predicted_delay_mean_seconds: float | None = None
    predicted_delay_p95_seconds: float | None = None
    predicted_success_rate: float | None = None
    predicted_timely_fraction: float | None = None
    method: str | None = None
    relative_error: float | None = None
    drift: float | None = None
    chance_of_delay: float | None = None
    chance_of_success: float | None = None
    chance_of_drift: float | None = None
    wanders: bool = False
    wrong_clocks: int = 0
    verdict: str = ""
    means: tuple[float, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether anything was asked of it."""
        chances = (self.chance_of_delay, self.chance_of_success, self.chance_of_drift)
        asked = self.method is not None and any(chance is not None for chance in chances)
        return asked or self.alarming

    @property
    def alarming(self) -> bool:
        """Whether the model does not hold here, or nobody can know."""
        return self.verdict in (*ALARMS, NOTHING_ARRIVED, WRONG_CLOCK)
