"""The simulator beside closed forms, and the fan-out model beside the simulator, at full length."""

import numpy as np
import pytest
from small_site import Document, published, site, topic

from firedex.planning import plan_scenario
from firedex.table_2 import Table2
from firedex.wire import Scenario, from_plain, to_plain
from firedex_models import predict
from firedex_models.simulation import SimulationSettings, simulate

CLASSES = 9


def nine_classes(load: float) -> Scenario:
    """Nine streams of mixed sizes, one for each class, on a link of that load."""
    names = [f"t/{k}" for k in range(CLASSES)]
    sizes = [60, 900, 120, 400, 51, 1300, 250, 80, 600]
    rates = {name: 20.0 + 3 * k for k, name in enumerate(names)}
    document: Document = site(
        topics=[
            topic(name, size, size_distribution="exponential")
            for name, size in zip(names, sizes, strict=True)
        ],
        publishers=[published("p0", rates)],
        subscribers=[
            {
                "id": "command",
                "switch": "s1",
                "subscriptions": [
                    {"filter": name, "utility": {"kind": "log", "weight": 1.0}} for name in names
                ],
            }
        ],
        assignment=[
            {"subscriber": "command", "filter": name, "flow": k, "priority": k}
            for k, name in enumerate(names)
        ],
    )
    bits = sum(rates[n] * 8 * (s + 49) for n, s in zip(names, sizes, strict=True))
    document["network"]["switches"][0]["bandwidth_bits_per_second"] = 1e12
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bits / load
    document["network"]["switches"][1]["priorities"] = CLASSES
    return from_plain(Scenario, document)


def errors(load: float, publications: int, replications: int) -> tuple[np.ndarray, np.ndarray]:
    scenario = nine_classes(load)
    settings = SimulationSettings(
        replications=replications, publications=publications, arrivals="independent", workers=2
    )
    mean = simulate(scenario, settings).subscriptions.delay_mean_seconds
    expected = predict(scenario, model="independent").delay_mean_seconds
    return np.abs(mean.mean / expected - 1), mean.half_width / expected


@pytest.mark.long
def test_independent_streams_at_medium_load_within_half_a_percent() -> None:
    error, half_width = errors(0.6, 2_500_000, 24)
    assert half_width.max() < 0.005
    assert error.max() <= 0.005


@pytest.mark.long
def test_independent_streams_close_to_saturation_within_two_percent() -> None:
    error, half_width = errors(0.95, 12_000_000, 16)
    assert half_width.max() <= 0.02
    assert error.max() <= 0.02


def table_2_errors(
    load: float, drops: str, publications: int, *, broker: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of the fan-out model's means and p95, class by class."""
    table = Table2(
        load=load if drops == "none" else None,
        telemetry_subscriptions=21 if drops == "none" else 70,
        event_subscriptions=15 if drops == "none" else 42,
    )
    document = to_plain(table.scenario())
    if not broker:  # then packets of a publication reach the link at one instant
        document["network"]["broker"] = {"id": "broker"}
        for switch in document["network"]["switches"]:
            switch["in_packets_per_second"] = None
    plan = plan_scenario(from_plain(Scenario, document), drop_policy=drops)  # type: ignore[arg-type]
    settings = SimulationSettings(replications=6, publications=publications, workers=2)
    summary = simulate(plan.planned, settings)
    classes = plan.table.classes()
    mean = np.array([row.delay_mean_seconds for row in classes], dtype=float)
    p95 = np.array([row.delay_p95_seconds for row in classes], dtype=float)
    measured = summary.classes
    slack = measured.delay_mean_seconds.half_width / mean
    mean_error = np.abs(measured.delay_mean_seconds.mean / mean - 1) - slack
    p95_slack = measured.delay_p95_seconds.half_width / p95
    return mean_error, np.abs(measured.delay_p95_seconds.mean / p95 - 1) - p95_slack


@pytest.mark.parametrize(
    ("load", "drops"),
    [(0.6, "none"), pytest.param(0.9, "exponential", marks=pytest.mark.long)],
)
def test_the_fan_out_model_on_table_2(load: float, drops: str) -> None:
    mean, p95 = table_2_errors(load, drops, 600_000, broker=False)
    assert (mean[:-2] <= 0.02).all()
    assert (mean[-2:] <= 0.03).all()
    assert (p95 <= 0.10).all()


@pytest.mark.long
@pytest.mark.parametrize(("load", "drops"), [(0.6, "none"), (0.9, "exponential")])
def test_a_broker_spreads_publications_and_high_classes_wait_longer_for_it(
    load: float, drops: str
) -> None:
    """The first packet of a publication is sent before higher ones of it have left the broker."""
    mean, p95 = table_2_errors(load, drops, 600_000, broker=True)
    assert (mean <= 0.12).all()
    assert (p95 <= 0.15).all()
    assert mean[:3].max() > mean[-2:].max() - 0.02
