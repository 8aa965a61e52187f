"""What a timeline makes of parties; ways; probes; the report as files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_site import BEGAN, observed, record, scenario

from firedex.wire import Scenario, from_plain, to_plain
from firedex_emulation.emulation_orders import EmulationOrders
from firedex_emulation.errors import EmulationError
from firedex_emulation.idle_network import idle_link_seconds, probed_topic, seconds_between_probes
from firedex_emulation.measurement import measure_way
from firedex_emulation.report import write_report
from firedex_emulation.timeline_effects import presence, publication_times
from firedex_emulation.ways import as_run, ways_of


def with_timeline(*events: dict[str, Any]) -> Scenario:
    return from_plain(Scenario, {**to_plain(scenario()), "timeline": list(events)})


@pytest.mark.parametrize(
    ("moves", "spans"),
    [
        ([], ((0.0, None),)),
        ([("join", 3)], ((3, None),)),
        ([("leave", 3)], ((0.0, 3),)),
        ([("leave", 5), ("join", 2), ("join", 7)], ((2, 5), (7, None))),
        ([("leave", 2), ("join", 4), ("leave", 6)], ((0.0, 2), (4, 6))),
        ([("join", 3), ("leave", 3)], ((3, 3),)),
    ],
)
def test_who_is_there_when(moves: list[tuple[str, float]], spans: object) -> None:
    events = [{"kind": kind, "at_seconds": at, "subscriber": "command"} for kind, at in moves]
    assert presence(with_timeline(*events), "command") == spans


def test_a_surge_multiplies_what_is_published_while_it_lasts() -> None:
    surge = {"kind": "surge", "at_seconds": 100, "publisher": "p0", "topic": "smoke/2"}
    of = with_timeline({**surge, "factor": 4, "for_seconds": 50})
    publisher = of.publishers[0]
    when, what = publication_times(publisher, of.timeline, 300, np.random.default_rng(1))
    assert (np.diff(when) >= 0).all()
    number = [p.topic for p in publisher.publications].index("smoke/2")
    mine = when[what == number]
    during = ((mine >= 100) & (mine < 150)).sum()
    assert during == pytest.approx(4 * 20 * 50, rel=0.1)
    assert len(mine) - during == pytest.approx(20 * 250, rel=0.1)
    others = when[what != number]
    assert ((others >= 100) & (others < 150)).sum() == pytest.approx(50 * 50, rel=0.15)


def test_a_surge_to_nothing_is_silence() -> None:
    surge = {"kind": "surge", "at_seconds": 1, "publisher": "p0", "factor": 0, "for_seconds": 2}
    of = with_timeline(surge)
    when, _ = publication_times(of.publishers[0], of.timeline, 4, np.random.default_rng(1))
    assert not ((when > 1) & (when < 3)).any()
    assert ((when < 1) | (when > 3)).any()


def test_the_ways_differ_in_the_plan_alone() -> None:
    none, priority, firedex = (as_run(scenario(), way) for way in ("none", "priority", "firedex"))
    assert none.planning.priorities == 1
    assert none.planning.drop_policy == priority.planning.drop_policy == "none"
    assert priority.planning.priorities == firedex.planning.priorities == 8
    assert firedex.planning.drop_policy == scenario().planning.drop_policy
    assert none.publishers == priority.publishers == firedex.publishers
    (managed,) = (switch for switch in firedex.network.switches if switch.managed)
    assert managed.burst_bytes > 1500
    assert managed.guaranteed_bits_per_second > 0
    assert managed.buffer is not None


def test_what_a_scenario_states_of_a_switch_is_kept() -> None:
    plain = to_plain(scenario())
    plain["network"]["switches"][1] |= {
        "burst_bytes": 3000.0,
        "guaranteed_bits_per_second": 500.0,
        "buffer": {"kind": "per-class-head-drop", "packets": 7},
    }
    of = from_plain(Scenario, plain)
    assert as_run(of, "firedex").network.switches[1] == of.network.switches[1]


def test_transport_is_for_everybody() -> None:
    of = replace(scenario(), transport="udp")
    assert as_run(of, "firedex", "tcp").transport == "tcp"
    assert as_run(of, "firedex").transport == "udp"


def test_an_assignment_is_refused() -> None:
    plain = to_plain(scenario())
    plain["assignment"] = [
        {"subscriber": "command", "filter": name, "flow": 0, "priority": 0}
        for name in ("smoke/#", "heat/1")
    ]
    with pytest.raises(EmulationError, match="'assignment'"):
        as_run(from_plain(Scenario, plain), "firedex")


def test_names_that_parts_have_are_refused() -> None:
    plain = to_plain(scenario())
    plain["subscribers"][0]["id"] = "gateway"
    with pytest.raises(EmulationError, match="'gateway' names"):
        as_run(from_plain(Scenario, plain), "firedex")


def test_what_is_later_than_the_run_does_not_happen_and_is_said() -> None:
    of = with_timeline({"kind": "leave", "at_seconds": 7, "subscriber": "command"})
    orders = EmulationOrders(scenario=of, ways=["firedex"], framework="ryu", seconds=6, seed=1)
    assert orders.as_run("firedex").timeline == ()
    assert orders.not_reached() == ("not reached: leave at 7 s",)


def test_ways_are_named() -> None:
    assert ways_of("firedex, none,firedex") == ("firedex", "none")
    with pytest.raises(ValueError, match="'magic'; there are none, priority, firedex"):
        ways_of("none,magic")


def test_probes_are_of_what_loads_the_network_least() -> None:
    of = as_run(scenario(), "firedex")
    topic = probed_topic(of, of.publishers[0])
    assert topic is not None
    assert topic.name == "heat/1"
    assert seconds_between_probes(of, topic) >= 0.012
    assert idle_link_seconds(of, topic) == 0.0  # within the burst


def test_a_batch_beyond_the_burst_takes_the_links_time() -> None:
    plain = to_plain(as_run(scenario(), "firedex"))
    plain["network"]["switches"][1]["burst_bytes"] = 1.0
    of = from_plain(Scenario, plain)
    topic = probed_topic(of, of.publishers[0])
    assert topic is not None
    packet = 14 + 20 + 8 + 7 + 24 + topic.event_bytes
    assert idle_link_seconds(of, topic) == pytest.approx((packet - 1) * 8 / 1e6)


def test_the_report_is_written_whole(tmp_path: Path) -> None:
    sent = [(f"s{number}", "smoke/1", BEGAN + number / 10) for number in range(100)]
    record(tmp_path, "firedex", [(e, t, "smoke/#", at, 0.1) for e, t, at in sent])
    of = scenario()
    way = measure_way(of, "firedex", observed(of, sent), tmp_path)
    orders = EmulationOrders(
        scenario=of, ways=["firedex"], framework="os-ken", seconds=10, seed=1, folder=tmp_path
    )
    written = write_report(orders, [way], tmp_path)
    assert all(path.stat().st_size > 100 for path in written)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    for said in ("smoke/#", "With FireDeX", "100.0 ms", "guaranteed"):
        assert said in page
        assert said in text
    assert "<script" not in page
    assert page.count("src='data:image/svg+xml;base64,") == 3  # wherever the page is shown
    assert page.count("<img") == 3
    for path in written:
        if path.suffix == ".svg":
            assert path.name in text
