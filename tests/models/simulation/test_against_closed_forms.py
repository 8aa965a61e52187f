"""Long simulations, compared with closed-form delays and with the fan-out model."""

import numpy as np
import pytest

from firedex.planning import plan_scenario
from firedex.scenario.table_2 import Table2
from firedex.wire import Scenario, from_plain, to_plain
from firedex_models import predict
from firedex_models.simulation import SimulationSettings, simulate
from tests.support.small_site import Document, publisher_entry, site, topic

pytestmark = pytest.mark.slow

CLASSES = 9


def nine_classes(load: float) -> Scenario:
    """Return nine streams with different sizes, one per class, on a link with the given load."""
    names = [f"t/{k}" for k in range(CLASSES)]
    sizes = [60, 900, 120, 400, 51, 1300, 250, 80, 600]
    rates = {name: 20.0 + 3 * k for k, name in enumerate(names)}
    document: Document = site(
        topics=[
            topic(name, size, size_distribution="exponential")
            for name, size in zip(names, sizes, strict=True)
        ],
        publishers=[publisher_entry("p0", rates)],
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


def relative_errors(
    load: float, publications: int, replications: int
) -> tuple[np.ndarray, np.ndarray]:
    scenario = nine_classes(load)
    settings = SimulationSettings(
        replications=replications, publications=publications, arrivals="independent", workers=2
    )
    mean = simulate(scenario, settings).subscriptions.delay_mean_seconds
    expected = predict(scenario, model="independent").delay_mean_seconds
    return np.abs(mean.mean / expected - 1), mean.half_width / expected


@pytest.mark.long
def test_independent_streams_at_medium_load_agree_within_half_a_percent() -> None:
    error, half_width = relative_errors(0.6, 2_500_000, 24)
    assert half_width.max() < 0.005
    assert error.max() <= 0.005


@pytest.mark.long
def test_independent_streams_near_saturation_agree_within_two_percent() -> None:
    error, half_width = relative_errors(0.95, 12_000_000, 16)
    assert half_width.max() <= 0.02
    assert error.max() <= 0.02


def table_2_errors(
    load: float, drops: str, publications: int, *, broker: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the relative errors of the fan-out model's mean and p95 of each class."""
    table = Table2(
        load=load if drops == "none" else None,
        telemetry_subscriptions=21 if drops == "none" else 70,
        event_subscriptions=15 if drops == "none" else 42,
    )
    document = to_plain(table.scenario())
    if not broker:  # without broker queues, packets of a publication reach the link together
        document["network"]["broker"] = {"id": "broker"}
        for switch in document["network"]["switches"]:
            switch["in_packets_per_second"] = None
    plan = plan_scenario(from_plain(Scenario, document), drop_policy=drops)  # type: ignore[arg-type]
    settings = SimulationSettings(replications=6, publications=publications, workers=2)
    summary = simulate(plan.planned_scenario, settings)
    classes = plan.table.classes()
    mean = np.array([row.delay_mean_seconds for row in classes], dtype=float)
    p95 = np.array([row.delay_p95_seconds for row in classes], dtype=float)
    measured = summary.classes
    tolerance = measured.delay_mean_seconds.half_width / mean
    mean_error = np.abs(measured.delay_mean_seconds.mean / mean - 1) - tolerance
    p95_tolerance = measured.delay_p95_seconds.half_width / p95
    return mean_error, np.abs(measured.delay_p95_seconds.mean / p95 - 1) - p95_tolerance


@pytest.mark.parametrize(
    ("load", "drops"),
    [(0.6, "none"), pytest.param(0.9, "exponential", marks=pytest.mark.long)],
)
def test_fan_out_model_agrees_with_simulation_of_table_2(load: float, drops: str) -> None:
    mean, p95 = table_2_errors(load, drops, 600_000, broker=False)
    assert (mean[:-2] <= 0.02).all()
    assert (mean[-2:] <= 0.03).all()
    assert (p95 <= 0.10).all()


@pytest.mark.long
@pytest.mark.parametrize(("load", "drops"), [(0.6, "none"), (0.9, "exponential")])
def test_broker_delay_increases_model_error_in_high_classes(load: float, drops: str) -> None:
    """The link sends the first packet before packets of higher classes have left the broker."""
    mean, p95 = table_2_errors(load, drops, 600_000, broker=True)
    assert (mean <= 0.12).all()
    assert (p95 <= 0.15).all()
    assert mean[:3].max() > mean[-2:].max() - 0.02
