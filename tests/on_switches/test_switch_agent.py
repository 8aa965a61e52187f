"""The switch agent on a real Open vSwitch with real packets; all experiments run in one sandbox.

Frames have 1000 bytes, the link has 10 Mbit/s. Unless stated otherwise, all classes offer the same
load, in total 2.5 times the link. ``meanwhile`` excludes packets that arrived after sending ended.
"""

from typing import Any

import pytest

from tests.on_switches.runs import run_program

pytestmark = pytest.mark.long

FITS = 0.995


@pytest.fixture(scope="module")
def experiments() -> dict[str, Any]:
    result: dict[str, Any] = run_program("switch_agent")
    return result


def column(result: dict[str, dict[str, float]], name: str = "fraction") -> dict[int, float]:
    return {int(priority): row[name] for priority, row in result.items()}


def check_strict_order(result: dict[str, dict[str, float]], share: float) -> None:
    """Check classes that offer ``share`` of the link each: all, a part, or nothing is delivered."""
    total, meanwhile = column(result), column(result, "meanwhile")
    fitting = int(1 / share)
    for priority in range(fitting):
        assert total[priority] >= FITS, priority
    rest = (1 - fitting * share) / share
    assert meanwhile[fitting] == pytest.approx(rest, abs=0.1)
    for priority in range(fitting + 1, len(meanwhile)):
        # At most the guaranteed 12 kbit/s, which are 0.4 % here, and a burst.
        assert meanwhile[priority] < 0.012, priority


def test_without_classes_all_marks_have_equal_losses(experiments: dict[str, Any]) -> None:
    fractions = column(experiments["eight"]["without classes"], "meanwhile").values()
    assert max(fractions) < 0.5
    assert max(fractions) - min(fractions) < 0.15


def test_eight_classes_are_served_in_strict_order(experiments: dict[str, Any]) -> None:
    check_strict_order(experiments["eight"]["seen"], 2.5 / 8)


def test_nine_classes_are_served_in_strict_order(experiments: dict[str, Any]) -> None:
    check_strict_order(experiments["more"]["nine"], 2.5 / 9)


def test_ninth_class_is_served_after_the_eighth(experiments: dict[str, Any]) -> None:
    """Check nested HTB: the eighth class has HTB's last priority and the ninth its first."""
    result = experiments["more"]["border"]
    assert column(result)[6] >= FITS
    assert column(result)[7] >= FITS
    assert column(result, "meanwhile")[8] == pytest.approx((1 - 0.9) / 0.6, abs=0.05)


def test_sixteen_classes_are_served_in_strict_order(experiments: dict[str, Any]) -> None:
    result = experiments["more"]["sixteen"]
    assert column(result)[0] >= FITS
    assert column(result)[7] >= FITS
    assert column(result, "meanwhile")[8] == pytest.approx((1 - 0.7) / 0.5, abs=0.05)
    assert column(result, "meanwhile")[15] < 0.012


def test_highest_class_is_not_delayed_by_the_overload(experiments: dict[str, Any]) -> None:
    idle = column(experiments["eight"]["idle"], "delay_seconds")[0]
    assert column(experiments["eight"]["seen"], "delay_seconds")[0] < idle + 0.002
    assert column(experiments["more"]["nine"], "delay_seconds")[0] < idle + 0.002


def test_small_send_buffer_loses_high_classes_and_is_reported_in_health(
    experiments: dict[str, Any],
) -> None:
    result = experiments["small buffer"]
    assert column(result["seen"])[0] < 0.9
    assert not result["health"]["healthy"]
    assert "net.core.wmem_default" in result["health"]["problems"][0]


def test_agent_enlarges_the_send_buffer(experiments: dict[str, Any]) -> None:
    health = experiments["eight"]["health"]
    assert health["healthy"], health
    assert health["send_buffer_bytes"] >= health["send_buffer_needed_bytes"] > 8 * 150 * 1500


def test_tail_drop_also_loses_packets_of_the_highest_class(experiments: dict[str, Any]) -> None:
    """Show why queues drop their oldest packet."""
    assert column(experiments["tail drop"]["seen"])[0] < 0.9
    assert [column(experiments["eight"]["together"])[p] >= FITS for p in range(3)] == [True] * 3


def test_unchanged_port_is_not_touched(experiments: dict[str, Any]) -> None:
    assert experiments["eight"]["changed"] == [True, False]


def test_counters_equal_sent_and_received_packets(experiments: dict[str, Any]) -> None:
    eight = experiments["eight"]
    for priority, row in eight["seen"].items():
        sent, received = eight["sent"], round(row["fraction"] * eight["sent"])
        # Hosts send ARP in the highest class, and router solicitations in the lowest.
        other_packets = 5 if priority in ("0", "7") else 0
        assert received <= eight["counted"][priority] <= received + other_packets
        assert sent - received <= eight["dropped"][priority] <= sent - received + other_packets


@pytest.mark.parametrize(
    ("experiment", "lowest"), [("places of eight", "6"), ("places of more", "12")]
)
def test_arp_uses_the_highest_class_and_unclassified_packets_the_lowest(
    experiments: dict[str, Any], experiment: str, lowest: str
) -> None:
    result = experiments[experiment]
    assert result["arp"]["1"] >= 20
    for kind in ("unmarked", "unknown mark", "not ip"):
        assert result[kind].pop(lowest) >= 18, kind
        assert sum(result[kind].values()) <= 2, kind  # ARP requests of the hosts


@pytest.mark.parametrize("experiment", ["in place of eight", "in place of more"])
def test_change_in_place_loses_no_queued_packet(
    experiments: dict[str, Any], experiment: str
) -> None:
    assert sum(experiments[experiment]["backlog"].values()) > 60
    assert set(column(experiments[experiment]["seen"]).values()) == {1.0}


@pytest.mark.parametrize(
    ("experiment", "rows"), [("repair eight", [1, 8]), ("repair more", [1, 0])]
)
def test_lost_queues_filters_and_rows_are_restored(
    experiments: dict[str, Any], experiment: str, rows: list[int]
) -> None:
    """Check after the switch daemon, its queues, filters and database rows were lost."""
    assert max(experiments[experiment]["seconds"]) < 5
    assert experiments[experiment]["rows"] == rows


def test_new_agent_restores_lost_queues(experiments: dict[str, Any]) -> None:
    _, result = experiments["new agent"]
    assert result["seconds"] < 5
    assert [row["priority"] for row in result["shaped"]["classes"]] == list(range(9))


def test_incompletely_applied_port_is_reported_and_retried(experiments: dict[str, Any]) -> None:
    result = experiments["half applied"]
    assert result["said"].startswith("QueuesNotApplied: ")
    assert "ovs-vsctl" in result["said"]
    assert "is ovs-vswitchd running?" in result["said"]
    assert result["troubled"]["port_problems"][0]["port"] == "to-far"
    assert result["seconds"] < 5
    assert result["classes"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("experiment", "before"), [("clear eight", [1, 8]), ("clear more", [1, 0])]
)
def test_clear_removes_all_queues_and_rows(
    experiments: dict[str, Any], experiment: str, before: list[int]
) -> None:
    result = experiments[experiment]
    assert result["before"] == before
    assert result["changed"] == [True, False]
    assert (result["rows"], result["qdiscs"], result["external_ids"]) == ([0, 0], ["noqueue"], "{}")
    assert result["report"] == {"shaped": None, "queues": []}


def test_removed_port_is_no_longer_managed(experiments: dict[str, Any]) -> None:
    assert experiments["gone"]["shaped_ports"] == 0
    assert experiments["gone"]["healthy"]


def test_bridges_are_reported(experiments: dict[str, Any]) -> None:
    (bridge,) = experiments["bridges"]
    assert bridge["name"] == "br"
    assert bridge["datapath"] == "userspace"
    assert bridge["ports"] == ["to-far", "to-near"]
    assert bridge["priorities"] == 16
    assert bridge["version"].split(".")[0].isdecimal()
