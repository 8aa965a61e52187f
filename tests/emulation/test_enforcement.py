"""The network obeys: classes, meters, changes under traffic, and what goes away and comes back."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from in_sandbox import experiment

SUITE = Path(__file__).parent.parent / "controller" / "test_switch_suite.py"
RYU = pytest.param(
    "ryu",
    marks=[
        pytest.mark.skipif(find_spec("ryu") is None, reason="ryu is not installed"),
        pytest.mark.long,  # what the suite shows on both is enough otherwise
    ],
)
MOST_RUNS = 3
CALM_SECONDS = 0.05
FITTING_CLASSES = 3
"""2.5 times the trunk in 8 or 9 equal flows: three of them fit."""


@pytest.mark.long
def test_the_suite_that_the_fake_passes_passes_on_open_vswitch(tmp_path: Path) -> None:
    experiment("suite_on_ovs", str(SUITE), str(tmp_path / "suite"))


def calm_run(name: str, *arguments: str) -> Any:
    """A run in which the machine did not stand still: packets would be lost before the rules."""
    for _ in range(MOST_RUNS):
        seen = experiment(name, "os-ken", *arguments)
        if seen["stalled_seconds"] < CALM_SECONDS:
            break
    return seen


@pytest.mark.parametrize("classes", [8, pytest.param(9, marks=pytest.mark.long)])
def test_an_overfull_trunk_delivers_classes_strictly_in_order(classes: int) -> None:
    seen = calm_run("enforcement", str(classes))
    during_load = [delivered for delivered, _, _ in seen["with"]]
    in_the_end = [delivered for _, delivered, _ in seen["with"]]
    assert min(in_the_end[:FITTING_CLASSES]) >= 0.995
    assert 0.05 < during_load[FITTING_CLASSES] < 0.8, "the class in which the load passes the link"
    assert max(during_load[FITTING_CLASSES + 1 :]) < 0.03, "their guarantee, and no more"
    ((_, _, idle_delay),) = seen["idle"]
    assert seen["with"][0][2] <= idle_delay + 0.002


@pytest.mark.long
def test_without_rules_the_same_load_shows_no_order() -> None:
    delivered = [share for _, share, _ in calm_run("enforcement", "8", "without")["without"]]
    assert max(delivered) - min(delivered) < 0.05
    assert 0.3 < min(delivered) < 0.5


def test_meters_take_their_share_of_every_size_and_of_nobody_else() -> None:
    seen = calm_run("metering")
    for drop_rate, by_size in seen["delivered"].items():
        for delivered in by_size:
            assert delivered == pytest.approx(1 - float(drop_rate), abs=0.04)
    assert seen["bystander"] == [1.0, 1.0]
    for (drop_rate, by_size), out, sent in zip(
        seen["delivered"].items(), seen["metered_out"][:-1], seen["sent"][:-1], strict=True
    ):
        assert out / sent == pytest.approx(1 - sum(by_size) / 2, abs=0.02), drop_rate


@pytest.mark.long
def test_a_thousand_flows_change_and_not_one_packet_is_lost() -> None:
    seen = calm_run("replacement")
    assert seen["lost"] == 0
    assert seen["reordered_unchanged_flows"] == 0
    for change in seen["changes"]:
        (core,) = change["switches"]
        assert core["flows_modified"] >= 500
        assert core["meters_modified"] == 250
        assert core["flows_unchanged"] >= 1500
        assert core["bundled"]


@pytest.mark.long
@pytest.mark.parametrize("framework", [RYU, "os-ken"])
def test_whatever_goes_away_comes_back_as_it_was(framework: str) -> None:
    seen = experiment("outages", framework)
    assert seen["controller"]["lost"] == 0
    assert seen["channel"]["lost"] == 0
    assert seen["channel"]["put_meanwhile"] == 503
    assert seen["daemon"]["lost_after"] == 0
    for what in ("controller", "daemon", "channel", "queues"):
        assert seen[what]["back_seconds"] < 5.0, what
    assert seen["queues"]["back_after_restart_seconds"] < 15.0, "an agent has to start first"
