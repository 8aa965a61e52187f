"""Test timelines, modes, probes and report files of an emulation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firedex.wire import Scenario, from_plain, to_plain
from firedex_emulation.errors import EmulationError
from firedex_emulation.measurement.comparison import measure_mode
from firedex_emulation.measurement.host_time import (
    idle_link_seconds,
    probed_topic,
    seconds_between_probes,
)
from firedex_emulation.report.pages import write_report
from firedex_emulation.testbed.emulation_settings import EmulationSettings
from firedex_emulation.testbed.modes import parse_modes, scenario_for_mode
from firedex_emulation.testbed.timeline import presence_intervals, publication_times
from tests.support.emulated_site import BEGAN, make_observation, scenario, write_deliveries

pytestmark = pytest.mark.slow


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
def test_presence_follows_joins_and_leaves(moves: list[tuple[str, float]], spans: object) -> None:
    events = [{"kind": kind, "at_seconds": at, "subscriber": "command"} for kind, at in moves]
    assert presence_intervals(with_timeline(*events), "command") == spans


def test_surge_multiplies_the_rate_while_it_lasts() -> None:
    surge = {"kind": "surge", "at_seconds": 100, "publisher": "p0", "topic": "smoke/2"}
    example = with_timeline({**surge, "factor": 4, "for_seconds": 50})
    publisher = example.publishers[0]
    times, indexes = publication_times(publisher, example.timeline, 300, np.random.default_rng(1))
    assert (np.diff(times) >= 0).all()
    number = [p.topic for p in publisher.publications].index("smoke/2")
    surged_times = times[indexes == number]
    during = ((surged_times >= 100) & (surged_times < 150)).sum()
    assert during == pytest.approx(4 * 20 * 50, rel=0.1)
    assert len(surged_times) - during == pytest.approx(20 * 250, rel=0.1)
    other_times = times[indexes != number]
    assert ((other_times >= 100) & (other_times < 150)).sum() == pytest.approx(50 * 50, rel=0.15)


def test_surge_with_factor_zero_publishes_nothing() -> None:
    surge = {"kind": "surge", "at_seconds": 1, "publisher": "p0", "factor": 0, "for_seconds": 2}
    example = with_timeline(surge)
    times, _ = publication_times(
        example.publishers[0],
        example.timeline,
        4,
        np.random.default_rng(1),
    )
    assert not ((times > 1) & (times < 3)).any()
    assert ((times < 1) | (times > 3)).any()


def test_modes_differ_only_in_planning() -> None:
    none, priority, firedex = (
        scenario_for_mode(scenario(), mode) for mode in ("none", "priority", "firedex")
    )
    assert none.planning.priorities == 1
    assert none.planning.drop_policy == priority.planning.drop_policy == "none"
    assert priority.planning.priorities == firedex.planning.priorities == 8
    assert firedex.planning.drop_policy == scenario().planning.drop_policy
    assert none.publishers == priority.publishers == firedex.publishers
    (managed,) = (switch for switch in firedex.network.switches if switch.managed)
    assert managed.burst_bytes > 1500
    assert managed.guaranteed_bits_per_second > 0
    assert managed.buffer is not None


def test_queue_settings_of_the_scenario_are_kept() -> None:
    plain = to_plain(scenario())
    plain["network"]["switches"][1] |= {
        "burst_bytes": 3000.0,
        "guaranteed_bits_per_second": 500.0,
        "buffer": {"kind": "per-class-head-drop", "packets": 7},
    }
    example = from_plain(Scenario, plain)
    assert scenario_for_mode(example, "firedex").network.switches[1] == example.network.switches[1]


def test_transport_option_applies_to_all_subscribers() -> None:
    example = replace(scenario(), transport="udp")
    assert scenario_for_mode(example, "firedex", "tcp").transport == "tcp"
    assert scenario_for_mode(example, "firedex").transport == "udp"


def test_scenario_with_an_assignment_is_rejected() -> None:
    plain = to_plain(scenario())
    plain["assignment"] = [
        {"subscriber": "command", "filter": name, "flow": 0, "priority": 0}
        for name in ("smoke/#", "heat/1")
    ]
    with pytest.raises(EmulationError, match="'assignment'"):
        scenario_for_mode(from_plain(Scenario, plain), "firedex")


def test_subscriber_with_the_name_of_a_part_is_rejected() -> None:
    plain = to_plain(scenario())
    plain["subscribers"][0]["id"] = "gateway"
    with pytest.raises(EmulationError, match="'gateway' is used twice"):
        scenario_for_mode(from_plain(Scenario, plain), "firedex")


def test_events_after_the_end_of_the_run_are_skipped_with_a_note() -> None:
    example = with_timeline({"kind": "leave", "at_seconds": 7, "subscriber": "command"})
    settings = EmulationSettings(
        scenario=example, modes=["firedex"], framework="ryu", seconds=6, seed=1
    )
    assert settings.scenario_for_mode("firedex").timeline == ()
    assert settings.skipped_events() == ("timeline event after the end of the run: leave at 7 s",)


def test_parse_modes_removes_duplicates_and_rejects_unknown_modes() -> None:
    assert parse_modes("firedex, none,firedex") == ("firedex", "none")
    with pytest.raises(
        ValueError, match="unknown mode 'magic'; the modes are none, priority, firedex"
    ):
        parse_modes("none,magic")


def test_probed_topic_puts_the_least_load_on_the_network() -> None:
    example = scenario_for_mode(scenario(), "firedex")
    topic = probed_topic(example, example.publishers[0])
    assert topic is not None
    assert topic.name == "heat/1"
    assert seconds_between_probes(example, topic) >= 0.012
    assert idle_link_seconds(example, topic) == 0.0  # within the burst


def test_packets_beyond_the_burst_take_time_on_the_link() -> None:
    plain = to_plain(scenario_for_mode(scenario(), "firedex"))
    plain["network"]["switches"][1]["burst_bytes"] = 1.0
    example = from_plain(Scenario, plain)
    topic = probed_topic(example, example.publishers[0])
    assert topic is not None
    packet = 14 + 20 + 8 + 7 + 24 + topic.event_bytes
    assert idle_link_seconds(example, topic) == pytest.approx((packet - 1) * 8 / 1e6)


def test_report_contains_all_tables_and_plots(tmp_path: Path) -> None:
    sent = [(f"s{number}", "smoke/1", BEGAN + number / 10) for number in range(100)]
    write_deliveries(tmp_path, "firedex", [(e, t, "smoke/#", at, 0.1) for e, t, at in sent])
    example = scenario()
    mode = measure_mode(example, "firedex", make_observation(example, sent), tmp_path)
    settings = EmulationSettings(
        scenario=example,
        modes=["firedex"],
        framework="os-ken",
        seconds=10,
        seed=1,
        folder=tmp_path,
    )
    written = write_report(settings, [mode], tmp_path)
    assert all(path.stat().st_size > 100 for path in written)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    for text_part in ("smoke/#", "With FireDeX", "100.0 ms", "guaranteed"):
        assert text_part in page
        assert text_part in text
    assert "<script" not in page
    assert (
        page.count("src='data:image/svg+xml;base64,") == 3
    )  # so that the page needs no other file
    assert page.count("<img") == 3
    for path in written:
        if path.suffix == ".svg":
            assert path.name in text
