"""Enforcement on real switches: classes, meters, changes under traffic, and recovery."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.on_switches.runs import MAX_RUNS, run_program, skipped_after_stalls

SUITE = Path(__file__).parent.parent / "controller" / "test_switch_suite.py"
RYU = pytest.param(
    "ryu",
    marks=[
        pytest.mark.skipif(find_spec("ryu") is None, reason="ryu is not installed"),
        pytest.mark.long,  # the suite covers both frameworks otherwise
    ],
)
MAX_STALL_SECONDS = 0.05
QUEUE_PACKETS, PACKETS_PER_SECOND = 250, 2500
"""Of one class on the trunk: a packet behind a full queue waits for 0.1 s."""
FITTING_CLASSES = 3
"""Number of the 8 or 9 equal flows that fit, at 2.5 times the bandwidth of the trunk."""


@pytest.mark.long
def test_switch_suite_passes_on_open_vswitch(tmp_path: Path) -> None:
    run_program("suite_on_ovs", str(SUITE), str(tmp_path / "suite"))


def run_program_without_stalls(name: str, *arguments: str) -> Any:
    """Repeat until the machine did not stall, because a stall loses packets before the rules."""
    for _ in range(MAX_RUNS):
        result = run_program(name, "os-ken", *arguments)
        if result["stalled_seconds"] < MAX_STALL_SECONDS:
            return result
    raise skipped_after_stalls(result["stalled_seconds"])


@pytest.mark.parametrize("classes", [8, pytest.param(9, marks=pytest.mark.long)])
def test_overloaded_trunk_delivers_classes_in_strict_order(classes: int) -> None:
    result = run_program_without_stalls("enforcement", str(classes))
    during_load = [delivered for delivered, _, _ in result["with"]]
    in_total = [delivered for _, delivered, _ in result["with"]]
    assert min(in_total[:FITTING_CLASSES]) >= 0.995
    assert 0.05 < during_load[FITTING_CLASSES] < 0.8, "the class in which the load passes the link"
    assert max(during_load[FITTING_CLASSES + 1 :]) < 0.03, "only the guaranteed rate"
    ((_, _, idle_delay),) = result["idle"]
    without_priority = QUEUE_PACKETS / PACKETS_PER_SECOND
    assert result["with"][0][2] <= idle_delay + without_priority / 10


@pytest.mark.long
def test_highest_class_waits_at_most_two_milliseconds_longer_than_on_an_idle_trunk() -> None:
    result = run_program_without_stalls("enforcement", "8")
    ((_, _, idle_delay),) = result["idle"]
    assert result["with"][0][2] <= idle_delay + 0.002


@pytest.mark.long
def test_without_rules_all_flows_have_equal_losses() -> None:
    delivered = [
        share
        for _, share, _ in run_program_without_stalls("enforcement", "8", "without")["without"]
    ]
    assert max(delivered) - min(delivered) < 0.05
    assert 0.3 < min(delivered) < 0.5


def test_meters_drop_their_share_of_every_packet_size_and_nothing_else() -> None:
    result = run_program_without_stalls("metering")
    for drop_rate, by_size in result["delivered"].items():
        for delivered in by_size:
            assert delivered == pytest.approx(1 - float(drop_rate), abs=0.04)
    # After a stall of the machine, packets arrive together and may exceed a meter with headroom.
    assert min(result["bystander"]) > 0.97
    for (drop_rate, by_size), out, sent in zip(
        result["delivered"].items(), result["metered_out"][:-1], result["sent"][:-1], strict=True
    ):
        assert out / sent == pytest.approx(1 - sum(by_size) / 2, abs=0.02), drop_rate


@pytest.mark.long
def test_changing_a_thousand_flows_loses_no_packet() -> None:
    result = run_program_without_stalls("replacement")
    assert result["lost"] == 0
    assert result["reordered_unchanged_flows"] == 0
    for change in result["changes"]:
        (core,) = change["switches"]
        assert core["flows_modified"] >= 500
        assert core["meters_modified"] == 250
        assert core["flows_unchanged"] >= 1500
        assert core["bundled"]


@pytest.mark.long
@pytest.mark.parametrize("framework", [RYU, "os-ken"])
def test_state_is_restored_after_every_failure(framework: str) -> None:
    result = run_program("outages", framework)
    assert result["controller"]["lost"] == 0
    assert result["channel"]["lost"] == 0
    assert result["channel"]["put_meanwhile"] == 503
    assert result["daemon"]["lost_after"] == 0
    for what in ("controller", "daemon", "channel", "queues"):
        assert result[what]["back_seconds"] < 5.0, what
    assert result["queues"]["back_after_restart_seconds"] < 15.0, "includes the start of an agent"
