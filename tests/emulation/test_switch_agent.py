"""The switch agent on a real Open vSwitch, with real packets. All scenes are played in one sandbox.

Frames of 1 000 bytes on a link of 10 Mbit/s; every class offers the same, 2.5 times the link in all
unless said otherwise. ``meanwhile`` leaves out what queues still held when sending had ended.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from firedex_emulation.sandbox import run_in_sandbox

pytestmark = pytest.mark.long

FITS = 0.995
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def scenes() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=":")
        seen: dict[str, Any] = json.loads(
            run_in_sandbox("switch_agent_scenes", [], timeout_seconds=180)
        )
    return seen


def column(seen: dict[str, dict[str, float]], name: str = "fraction") -> dict[int, float]:
    return {int(priority): row[name] for priority, row in seen.items()}


def check_strict_order(seen: dict[str, dict[str, float]], share: float) -> None:
    """Classes of ``share`` of the link each: those that fit, the one that partly does, the rest."""
    whole, meanwhile = column(seen), column(seen, "meanwhile")
    fitting = int(1 / share)
    for priority in range(fitting):
        assert whole[priority] >= FITS, priority
    rest = (1 - fitting * share) / share
    assert meanwhile[fitting] == pytest.approx(rest, abs=0.1)
    for priority in range(fitting + 1, len(meanwhile)):
        # No more than the 12 kbit/s that it is guaranteed, which are 0.4 % here, and a burst.
        assert meanwhile[priority] < 0.012, priority


def test_without_classes_the_same_load_shows_no_order(scenes: dict[str, Any]) -> None:
    fractions = column(scenes["eight"]["without classes"], "meanwhile").values()
    assert max(fractions) < 0.5
    assert max(fractions) - min(fractions) < 0.15


def test_eight_classes_are_served_in_strict_order(scenes: dict[str, Any]) -> None:
    check_strict_order(scenes["eight"]["seen"], 2.5 / 8)


def test_nine_classes_are_served_in_strict_order(scenes: dict[str, Any]) -> None:
    check_strict_order(scenes["more"]["nine"], 2.5 / 9)


def test_the_ninth_class_comes_after_the_eighth(scenes: dict[str, Any]) -> None:
    """The eighth has HTB's last priority and the ninth its first: only nesting puts them right."""
    seen = scenes["more"]["border"]
    assert column(seen)[6] >= FITS
    assert column(seen)[7] >= FITS
    assert column(seen, "meanwhile")[8] == pytest.approx((1 - 0.9) / 0.6, abs=0.05)


def test_sixteen_classes_are_served_in_strict_order(scenes: dict[str, Any]) -> None:
    seen = scenes["more"]["sixteen"]
    assert column(seen)[0] >= FITS
    assert column(seen)[7] >= FITS
    assert column(seen, "meanwhile")[8] == pytest.approx((1 - 0.7) / 0.5, abs=0.05)
    assert column(seen, "meanwhile")[15] < 0.012


def test_the_highest_class_does_not_feel_the_overload(scenes: dict[str, Any]) -> None:
    idle = column(scenes["eight"]["idle"], "delay_seconds")[0]
    assert column(scenes["eight"]["seen"], "delay_seconds")[0] < idle + 0.002
    assert column(scenes["more"]["nine"], "delay_seconds")[0] < idle + 0.002


def test_a_usual_send_buffer_loses_high_classes_and_health_says_so(scenes: dict[str, Any]) -> None:
    seen = scenes["small buffer"]
    assert column(seen["seen"])[0] < 0.9
    assert not seen["health"]["healthy"]
    assert "net.core.wmem_default" in seen["health"]["problems"][0]


def test_the_agent_enlarges_it(scenes: dict[str, Any]) -> None:
    health = scenes["eight"]["health"]
    assert health["healthy"], health
    assert health["send_buffer_bytes"] >= health["send_buffer_needed_bytes"] > 8 * 150 * 1500


def test_a_refused_packet_takes_its_whole_batch_with_it(scenes: dict[str, Any]) -> None:
    """Why leaves drop their oldest packet: with others, the highest class loses too."""
    assert column(scenes["tail drop"]["seen"])[0] < 0.9
    assert [column(scenes["eight"]["together"])[p] >= FITS for p in range(3)] == [True] * 3


def test_an_unchanged_port_is_not_touched(scenes: dict[str, Any]) -> None:
    assert scenes["eight"]["changed"] == [True, False]


def test_counters_count(scenes: dict[str, Any]) -> None:
    eight = scenes["eight"]
    for priority, row in eight["seen"].items():
        sent, received = eight["sent"], round(row["fraction"] * eight["sent"])
        # Hosts ask for addresses in the highest class, and for routers and the like in the lowest.
        strays = 5 if priority in ("0", "7") else 0
        assert received <= eight["counted"][priority] <= received + strays
        assert sent - received <= eight["dropped"][priority] <= sent - received + strays


@pytest.mark.parametrize(("scene", "lowest"), [("places of eight", "6"), ("places of more", "12")])
def test_arp_rides_high_and_whatever_has_no_class_rides_low(
    scenes: dict[str, Any], scene: str, lowest: str
) -> None:
    seen = scenes[scene]
    assert seen["arp"]["1"] >= 20
    for kind in ("unmarked", "unknown mark", "not ip"):
        assert seen[kind].pop(lowest) >= 18, kind
        assert sum(seen[kind].values()) <= 2, kind  # ARP that hosts ask for themselves


@pytest.mark.parametrize("scene", ["in place of eight", "in place of more"])
def test_a_change_in_place_loses_nothing_that_is_queued(scenes: dict[str, Any], scene: str) -> None:
    assert sum(scenes[scene]["backlog"].values()) > 60
    assert set(column(scenes[scene]["seen"]).values()) == {1.0}


@pytest.mark.parametrize(("scene", "rows"), [("repair eight", [1, 8]), ("repair more", [1, 0])])
def test_what_is_lost_is_applied_again(scenes: dict[str, Any], scene: str, rows: list[int]) -> None:
    """After the switch daemon was killed and its tree with it; filters; Open vSwitch's rows."""
    assert max(scenes[scene]["seconds"]) < 5
    assert scenes[scene]["rows"] == rows


def test_a_new_agent_takes_over(scenes: dict[str, Any]) -> None:
    _, seen = scenes["new agent"]
    assert seen["seconds"] < 5
    assert [row["priority"] for row in seen["shaped"]["classes"]] == list(range(9))


def test_a_half_applied_port_is_reported_and_retried(scenes: dict[str, Any]) -> None:
    seen = scenes["half applied"]
    assert seen["said"].startswith("QueuesNotApplied: ")
    assert "ovs-vsctl" in seen["said"]
    assert "is ovs-vswitchd running?" in seen["said"]
    assert seen["troubled"]["troubled_ports"][0]["port"] == "to-far"
    assert seen["seconds"] < 5
    assert seen["classes"] == [0, 1, 2]


@pytest.mark.parametrize(("scene", "before"), [("clear eight", [1, 8]), ("clear more", [1, 0])])
def test_clearing_leaves_nothing(scenes: dict[str, Any], scene: str, before: list[int]) -> None:
    seen = scenes[scene]
    assert seen["before"] == before
    assert seen["changed"] == [True, False]
    assert (seen["rows"], seen["qdiscs"], seen["external_ids"]) == ([0, 0], ["noqueue"], "{}")
    assert seen["report"] == {"shaped": None, "queues": []}


def test_a_port_that_is_gone_is_forgotten(scenes: dict[str, Any]) -> None:
    assert scenes["gone"]["shaped_ports"] == 0
    assert scenes["gone"]["healthy"]


def test_bridges_are_reported(scenes: dict[str, Any]) -> None:
    (bridge,) = scenes["bridges"]
    assert bridge["name"] == "br"
    assert bridge["datapath"] == "userspace"
    assert bridge["ports"] == ["to-far", "to-near"]
    assert bridge["priorities"] == 16
    assert bridge["version"].split(".")[0].isdecimal()
