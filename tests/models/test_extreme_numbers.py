"""An extreme number is either rejected when the scenario is read, or predicted."""

from typing import Any

import pytest

from firedex.wire import InvalidValue, Prediction, Scenario, from_plain
from tests.support.small_site import Document, predict_site, publisher_entry, site


def replace_at(document: Document, *steps: Any) -> Document:
    """Set the value at a path of ``document``: ``steps`` are the keys, then the value."""
    *path, last, value = steps
    here: Any = document
    for step in path:
        here = here[step]
    here[last] = value
    return document


def site_without_managed_switch() -> Document:
    return replace_at(site(), "network", "switches", 1, "managed", False)


def two_publishers(rate: float) -> Document:
    return site(publishers=[publisher_entry(name, {"smoke/1": rate}) for name in ("p0", "p1")])


CASES: dict[str, Document] = {
    "flow number": replace_at(site(), "assignment", 0, "flow", 2**70),
    "class without a managed switch": replace_at(
        site_without_managed_switch(), "assignment", 0, "priority", 10**15
    ),
    "event size": replace_at(site(transport="tcp"), "topics", 0, "event_bytes", 10**400),
    "buffer": replace_at(
        site(),
        *("network", "switches", 1),
        *("buffer", {"kind": "shared-push-out", "packets": 10**400}),
    ),
    "rates whose sum overflows": two_publishers(1e308),
    "very low bandwidth": replace_at(
        site(), "network", "switches", 1, "bandwidth_bits_per_second", 1e-320
    ),
    "very slow broker": replace_at(site(), "network", "broker", "in_events_per_second", 1e-320),
    "weight": replace_at(
        site(), "subscribers", 0, "subscriptions", 0, "utility", "weight", 1.7e308
    ),
}


@pytest.mark.parametrize("document", CASES.values(), ids=CASES)
def test_extreme_number_is_rejected_with_its_path_or_predicted(document: Document) -> None:
    try:
        from_plain(Scenario, document)
    except InvalidValue as error:
        rejection = error
    else:
        assert isinstance(predict_site(document), Prediction)
        return
    assert all(problem.path for problem in rejection.problems)


@pytest.mark.parametrize("bandwidth", [1e-3, 1e15])
@pytest.mark.parametrize("rate", [1e-9, 1e9])
def test_wide_ranges_of_rate_and_bandwidth_are_predicted(rate: float, bandwidth: float) -> None:
    document = two_publishers(rate)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bandwidth
    (row,) = predict_site(document).subscriptions
    assert row.offered_events_per_second == pytest.approx(2 * rate)
    assert 0 <= row.success_rate <= 1
    assert (row.delay_mean_seconds is None) == (row.method == "unstable")
