"""A number is either refused with the scenario or predicted; nothing in between."""

from typing import Any

import pytest
from small_site import Document, predicted, published, site

from firedex.wire import InvalidValue, Prediction, Scenario, from_plain


def with_at(document: Document, *steps: Any) -> Document:
    """``document`` with the last of ``steps`` put where the others lead."""
    *path, last, wrong = steps
    here: Any = document
    for step in path:
        here = here[step]
    here[last] = wrong
    return document


def behind_an_unmanaged_switch() -> Document:
    return with_at(site(), "network", "switches", 1, "managed", False)


def endless_rates(rate: float) -> Document:
    return site(publishers=[published(name, {"smoke/1": rate}) for name in ("p0", "p1")])


CASES: dict[str, Document] = {
    "flow number": with_at(site(), "assignment", 0, "flow", 2**70),
    "class without a managed switch": with_at(
        behind_an_unmanaged_switch(), "assignment", 0, "priority", 10**15
    ),
    "event size": with_at(site(transport="tcp"), "topics", 0, "event_bytes", 10**400),
    "buffer": with_at(
        site(),
        *("network", "switches", 1),
        *("buffer", {"kind": "shared-push-out", "packets": 10**400}),
    ),
    "rates whose sum overflows": endless_rates(1e308),
    "almost no bandwidth": with_at(
        site(), "network", "switches", 1, "bandwidth_bits_per_second", 1e-320
    ),
    "almost no broker": with_at(site(), "network", "broker", "in_events_per_second", 1e-320),
    "weight": with_at(site(), "subscribers", 0, "subscriptions", 0, "utility", "weight", 1.7e308),
}


@pytest.mark.parametrize("document", CASES.values(), ids=CASES)
def test_an_extreme_number_is_refused_by_name_or_predicted(document: Document) -> None:
    try:
        from_plain(Scenario, document)
    except InvalidValue as error:
        refused = error
    else:
        assert isinstance(predicted(document), Prediction)
        return
    assert all(problem.path for problem in refused.problems)


@pytest.mark.parametrize("bandwidth", [1e-3, 1e15])
@pytest.mark.parametrize("rate", [1e-9, 1e9])
def test_wide_but_possible_ranges_are_predicted(rate: float, bandwidth: float) -> None:
    document = endless_rates(rate)
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = bandwidth
    (row,) = predicted(document).subscriptions
    assert row.offered_events_per_second == pytest.approx(2 * rate)
    assert 0 <= row.success_rate <= 1
    assert (row.delay_mean_seconds is None) == (row.method == "unstable")
