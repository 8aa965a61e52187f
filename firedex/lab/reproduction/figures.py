"""Figs. 5-10 of the paper, in both interpretations of its bandwidth.

The paper does not say whether 80 Mbit/s are one queue that all subscribers share, or 8 Mbit/s for
each subscriber. Both are reproduced: in the first case the packets of one publication arrive
together at the bottleneck, in the second case they do not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firedex.lab.reproduction.cases import Case, Outcome, average_over_seeds, run_cases
from firedex.lab.reproduction.claims import (
    check_fig5,
    check_fig6,
    check_fig7,
    check_fig8,
    check_fig9,
    check_fig10,
)
from firedex.lab.reproduction.figure import Effort, Figure, Panel, Series
from firedex.scenario.table_2 import Table2
from firedex.wire import DropPolicy, PriorityPolicy

__all__ = ["FIGURES", "reproduce"]

Floats = NDArray[np.float64]
FIRST_SEED = 2
CLASSES = 9
DEADLINE_SECONDS = 0.5
INTERPRETATIONS = {True: "one 80 Mbit/s queue for all", False: "8 Mbit/s for each subscriber"}
OVERLOAD = 1.7
LOADS: dict[str, tuple[float, int, int, DropPolicy]] = {
    "ρ = 0.6": (0.6, 21, 15, "none"),
    "ρ = 0.95": (0.95, 42, 24, "none"),
    "ρ = 1.7, exponential drop rates": (OVERLOAD, 70, 42, "exponential"),
}
CONFIGURATIONS: dict[str, tuple[PriorityPolicy, DropPolicy]] = {
    "no priorities": ("none", "none"),
    "priorities": ("bandwidth-adjusted", "none"),
    "priorities and drop rates": ("bandwidth-adjusted", "exponential"),
}
POLICIES: dict[str, tuple[PriorityPolicy, DropPolicy]] = {
    "none": ("none", "none"),
    "random": ("random", "none"),
    "information-only": ("information-only", "none"),
    "bandwidth-adjusted": ("bandwidth-adjusted", "none"),
    "… and exponential": ("bandwidth-adjusted", "exponential"),
    "… and optimized": ("bandwidth-adjusted", "optimized"),
    "… and deadline-aware": ("bandwidth-adjusted", "deadline-aware"),
}
DROPS: tuple[DropPolicy, ...] = ("flat", "linear", "exponential", "optimized", "deadline-aware")

Outcomes = dict[Case, Outcome]


class Results:
    """Outcomes of all cases, averaged over seeds."""

    def __init__(self, effort: Effort, outcomes: Outcomes) -> None:
        self.effort, self._outcomes = effort, outcomes

    def mean(self, cases: Sequence[Case], name: str) -> tuple[Floats, Floats]:
        """Return mean and half-width of a value over these cases (one for each seed)."""
        return average_over_seeds([getattr(self._outcomes[case], name) for case in cases])

    def scalar(self, cases: Sequence[Case], name: str) -> float:
        """Return the mean of a value that is one number per case."""
        return float(self.mean(cases, name)[0][0])


def seeds(
    effort: Effort,
    make: Callable[[int], Table2],
    *,
    publications: int | None = None,
    **policies: Any,
) -> list[Case]:
    """Return the same case for every seed."""
    chosen = effort.publications if publications is None else publications
    return [
        Case(table=make(FIRST_SEED + n), publications=chosen, **policies)
        for n in range(effort.seeds)
    ]


def fig5_cases(effort: Effort, shared: bool) -> dict[str, list[Case]]:
    """Return the cases of each load."""
    return {
        name: seeds(
            effort,
            lambda seed, r=load, t=telemetry, e=events: Table2(  # type: ignore[misc]
                seed=seed, load=r, telemetry_subscriptions=t, event_subscriptions=e, shared=shared
            ),
            drops=drops,
        )
        for name, (load, telemetry, events, drops) in LOADS.items()
    }


def fig6_cases(effort: Effort, shared: bool) -> dict[str, list[Case]]:
    """Return the cases of each number of subscribers."""
    return {
        f"{count} subscriber{'s' if count > 1 else ''}": seeds(
            effort,
            lambda seed, n=count: Table2(  # type: ignore[misc]
                seed=seed, load=OVERLOAD, subscribers=n, shared=shared
            ),
            publications=effort.publications * 10 // max(count, 10),
        )
        for count in effort.subscribers
    }


def fig7_cases(effort: Effort, shared: bool) -> dict[str, list[Case]]:
    """Return the cases of each configuration of the switch."""
    return {
        name: seeds(
            effort,
            lambda seed: Table2(seed=seed, load=OVERLOAD, shared=shared),
            priorities=priorities,
            drops=drops,
        )
        for name, (priorities, drops) in CONFIGURATIONS.items()
    }


def fig9_cases(effort: Effort, shared: bool) -> dict[str, list[Case]]:
    """Return the cases of each policy, with deadlines for the timely utility."""
    return {
        name: seeds(
            effort,
            lambda seed: Table2(
                seed=seed, load=OVERLOAD, shared=shared, deadline_seconds=DEADLINE_SECONDS
            ),
            priorities=priorities,
            drops=drops,
        )
        for name, (priorities, drops) in POLICIES.items()
    }


def fig10_cases(effort: Effort, shared: bool) -> dict[str, list[list[Case]]]:
    """Return the cases of each drop policy and weight factor."""
    return {
        drops: [
            seeds(
                effort,
                lambda seed, f=factor: Table2(  # type: ignore[misc]
                    seed=seed,
                    load=OVERLOAD,
                    shared=shared,
                    event_weight_factor=float(f),
                    deadline_seconds=DEADLINE_SECONDS,
                ),
                publications=effort.publications // 4,
                drops=drops,
            )
            for factor in effort.factors
        ]
        for drops in DROPS
    }


def _curve(label: str, by: str, values: tuple[Floats, Floats], scale: float = 1.0) -> Series:
    mean, half = values[0] * scale, values[1] * scale
    if len(mean) == 1:  # the only class stands for all classes
        mean, half = np.repeat(mean, CLASSES), np.repeat(half, CLASSES)
    return Series(
        label=label,
        by="model" if by == "model" else "simulation",
        x=list(range(len(mean))),
        y=[_finite_or_none(value) for value in mean],
        half_width=None if by == "model" else [_finite_or_none(value) for value in half],
    )


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _delay_panels(
    results: Results, groups: dict[str, list[Case]], interpretation: str
) -> list[Panel]:
    return [
        Panel(
            title=f"{name}; {interpretation}",
            x_label="class",
            y_label="response time [ms]",
            log_y=True,
            series=[
                _curve("simulated", "simulation", results.mean(cases, "delay"), 1e3),
                _curve("fan-out model", "model", results.mean(cases, "model_delay"), 1e3),
                _curve("the paper's model", "model", results.mean(cases, "independent_delay"), 1e3),
            ],
        )
        for name, cases in groups.items()
    ]


def _fig5(results: Results) -> Figure:
    groups = {shared: fig5_cases(results.effort, shared) for shared in INTERPRETATIONS}
    panels = [p for s, g in groups.items() for p in _delay_panels(results, g, INTERPRETATIONS[s])]
    return Figure(
        name="fig5",
        title="Response times by class, for three loads",
        panels=panels,
        claims=check_fig5(results, groups),
    )


def _fig6(results: Results) -> Figure:
    groups = {shared: fig6_cases(results.effort, shared) for shared in INTERPRETATIONS}
    panels = [p for s, g in groups.items() for p in _delay_panels(results, g, INTERPRETATIONS[s])]
    return Figure(
        name="fig6",
        title="Response times by class and number of subscribers",
        panels=panels,
        claims=check_fig6(results, groups),
    )


def _by_configuration(results: Results, *, success: bool) -> list[Panel]:
    panels = []
    for shared, interpretation in INTERPRETATIONS.items():
        series = []
        for name, cases in fig7_cases(results.effort, shared).items():
            measured, predicted = (
                ("success", "model_success") if success else ("delay", "model_delay")
            )
            scale = 100.0 if success else 1e3
            series.append(_curve(name, "simulation", results.mean(cases, measured), scale))
            series.append(_curve(name, "model", results.mean(cases, predicted), scale))
        panels.append(
            Panel(
                title=interpretation,
                x_label="class",
                y_label="success rate [%]" if success else "response time [ms]",
                log_y=not success,
                series=series,
            )
        )
    return panels


def _fig7(results: Results) -> Figure:
    groups = {shared: fig7_cases(results.effort, shared) for shared in INTERPRETATIONS}
    return Figure(
        name="fig7",
        title="Success rates: no priorities, priorities, priorities and drop rates",
        panels=_by_configuration(results, success=True),
        claims=check_fig7(results, groups),
    )


def _fig8(results: Results) -> Figure:
    groups = {shared: fig7_cases(results.effort, shared) for shared in INTERPRETATIONS}
    return Figure(
        name="fig8",
        title="Response times: no priorities, priorities, priorities and drop rates",
        panels=_by_configuration(results, success=False),
        claims=check_fig8(results, groups),
    )


MEASURES = {
    "ΣU ÷ ΣÛ": ("rate", "model_rate"),
    "mean of U ÷ Û (the paper's)": ("mean_rate", "model_mean_rate"),
    f"ΣU ÷ ΣÛ of events that arrive within {DEADLINE_SECONDS} s": ("timely", "model_timely"),
}


def _fig9(results: Results) -> Figure:
    groups = {shared: fig9_cases(results.effort, shared) for shared in INTERPRETATIONS}
    panels = []
    for shared, by_policy in groups.items():
        for measure, names in MEASURES.items():
            series = [
                _bars("simulated", [results.mean(cases, names[0]) for cases in by_policy.values()]),
                _bars("model", [results.mean(cases, names[1]) for cases in by_policy.values()]),
            ]
            panels.append(
                Panel(
                    title=f"{measure}; {INTERPRETATIONS[shared]}",
                    x_label="policy",
                    y_label="achieved utility rate [%]",
                    bars=True,
                    ticks=list(by_policy),
                    series=series,
                )
            )
    return Figure(
        name="fig9",
        title="Utility with priorities and drop rates",
        panels=panels,
        claims=check_fig9(results, groups),
    )


def _bars(label: str, values: list[tuple[Floats, Floats]]) -> Series:
    return Series(
        label=label,
        by="simulation" if label == "simulated" else "model",
        x=list(range(len(values))),
        y=[_finite_or_none(float(mean[0]) * 100) for mean, _ in values],
        half_width=[_finite_or_none(float(half[0]) * 100) for _, half in values],
    )


def _fig10(results: Results) -> Figure:
    groups = {shared: fig10_cases(results.effort, shared) for shared in INTERPRETATIONS}
    panels = []
    for shared, by_policy in groups.items():
        for measure, names in (("ΣU ÷ ΣÛ", MEASURES["ΣU ÷ ΣÛ"]), *list(MEASURES.items())[2:]):
            series = []
            for drops, by_factor in by_policy.items():
                for by, name in zip(("simulation", "model"), names, strict=True):
                    values = [results.mean(cases, name) for cases in by_factor]
                    series.append(
                        Series(
                            label=drops,
                            by="model" if by == "model" else "simulation",
                            x=list(results.effort.factors),
                            y=[_finite_or_none(float(mean[0]) * 100) for mean, _ in values],
                            half_width=[
                                _finite_or_none(float(half[0]) * 100) for _, half in values
                            ],
                        )
                    )
            panels.append(
                Panel(
                    title=f"{measure}; {INTERPRETATIONS[shared]}",
                    x_label="weight of events relative to Table 2",
                    y_label="achieved utility rate [%]",
                    series=series,
                )
            )
    return Figure(
        name="fig10",
        title="Drop policies by weight of events",
        panels=panels,
        claims=check_fig10(results, groups),
    )


@dataclass(frozen=True, slots=True)
class _FigureDefinition:
    cases: Callable[[Effort, bool], dict[str, list[Case]] | dict[str, list[list[Case]]]]
    build: Callable[[Results], Figure]


FIGURES: dict[str, _FigureDefinition] = {
    "fig5": _FigureDefinition(fig5_cases, _fig5),
    "fig6": _FigureDefinition(fig6_cases, _fig6),
    "fig7": _FigureDefinition(fig7_cases, _fig7),
    "fig8": _FigureDefinition(fig7_cases, _fig8),
    "fig9": _FigureDefinition(fig9_cases, _fig9),
    "fig10": _FigureDefinition(fig10_cases, _fig10),
}


def _flatten(groups: dict[str, list[Case]] | dict[str, list[list[Case]]]) -> list[Case]:
    found: list[Case] = []
    for cases in groups.values():
        for case in cases:
            found += case if isinstance(case, list) else [case]
    return found


def reproduce(
    names: Sequence[str],
    effort: Effort,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Figure]:
    """Reproduce figures; cases that several figures share are run once."""
    cases: list[Case] = []
    for name in names:
        for shared in INTERPRETATIONS:
            cases += _flatten(FIGURES[name].cases(effort, shared))
    cases = list(dict.fromkeys(cases))
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        progress(done, len(cases))

    results = Results(effort, run_cases(cases, workers, count))
    return [FIGURES[name].build(results) for name in names]
