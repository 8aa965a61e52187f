"""Mistakes that involve several parts of a scenario file, and many mistakes together."""

from pathlib import Path

import pytest

from firedex.scenario import InvalidScenarioFile, read_scenario
from firedex.wire import Scenario, from_plain
from tests.support.small_site import (
    Document,
    assign,
    path_of_two_switches,
    site,
    subscriber_entry,
    topic,
    write_scenario,
)


def problems(tmp_path: Path, document: Document) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(InvalidScenarioFile) as caught:
        read_scenario(write_scenario(tmp_path, document))
    return {problem.path: problem.message for problem in caught.value.problems}


def test_scenario_file_equals_plain_data(tmp_path: Path) -> None:
    assert read_scenario(write_scenario(tmp_path, site())) == from_plain(Scenario, site())


def test_large_events_are_accepted_over_tcp(tmp_path: Path) -> None:
    document = site(transport="tcp")
    document["topics"][0]["event_bytes"] = 1_000_000
    assert read_scenario(write_scenario(tmp_path, document)).topics[0].event_bytes == 1_000_000


def test_largest_datagram_is_accepted(tmp_path: Path) -> None:
    document = site()
    document["topics"][0]["event_bytes"] = 1463
    assert read_scenario(write_scenario(tmp_path, document)).topics[0].event_bytes == 1463


def test_large_events_are_rejected_if_one_client_uses_udp(tmp_path: Path) -> None:
    document = site(transport="tcp")
    document["topics"][0]["event_bytes"] = 1_000_000
    document["subscribers"][0]["transport"] = "udp"
    assert list(problems(tmp_path, document)) == [("topics", 0, "event_bytes")]


def test_large_events_are_accepted_if_every_client_uses_tcp(tmp_path: Path) -> None:
    document = site(transport="udp")
    document["topics"][0]["event_bytes"] = 1_000_000
    document["subscribers"][0]["transport"] = "tcp"
    document["publishers"][0]["transport"] = "tcp"
    assert read_scenario(write_scenario(tmp_path, document)).transport == "udp"


def test_event_stamp_reduces_the_maximum_event_size(tmp_path: Path) -> None:
    document = site(stamped_events=True)
    document["topics"][0]["event_bytes"] = 1440
    reported = problems(tmp_path, document)
    assert "the maximum is 1439 with the event stamp" in reported["topics", 0, "event_bytes"]
    document["topics"][0]["event_bytes"] = 1439
    assert read_scenario(write_scenario(tmp_path, document))


def test_loop_of_links_requires_the_switch_of_the_broker(tmp_path: Path) -> None:
    document = path_of_two_switches()
    document["network"]["links"].append({"from": "s2", "to": "s1"})
    reported = problems(tmp_path, document)
    assert list(reported) == [("subscribers", 0, "switch")]
    assert "give network.broker.switch" in reported["subscribers", 0, "switch"]
    document["network"]["broker"]["switch"] = "s1"
    assert read_scenario(write_scenario(tmp_path, document))


def test_unreachable_switch_is_named_in_error(tmp_path: Path) -> None:
    document = path_of_two_switches()
    document["network"]["switches"].append({"id": "s3", "bandwidth_bits_per_second": 1e6})
    document["network"]["switches"].append({"id": "s4", "bandwidth_bits_per_second": 1e6})
    document["network"]["links"].append({"from": "s3", "to": "s4"})
    document["network"]["broker"]["switch"] = "s1"
    document["subscribers"][0]["switch"] = "s4"
    reported = problems(tmp_path, document)
    assert reported == {
        ("subscribers", 0, "switch"): "no links lead from the broker's switch 's1' to 's4'"
    }


def test_classes_are_limited_by_the_switch_with_the_fewest_classes(tmp_path: Path) -> None:
    document = path_of_two_switches(priorities=2)
    document["assignment"] = [assign("command", "smoke/#", priority=2)]
    reported = problems(tmp_path, document)
    assert list(reported) == [("assignment", 0, "priority")]
    assert "have 2 classes, numbered 0 to 1" in reported["assignment", 0, "priority"]


def test_unmanaged_switches_do_not_limit_the_classes(tmp_path: Path) -> None:
    document = path_of_two_switches(managed=False, priorities=1)
    document["assignment"] = [assign("command", "smoke/#", priority=7)]
    assert read_scenario(write_scenario(tmp_path, document))


def test_site_without_switches_is_rejected(tmp_path: Path) -> None:
    document = site(publishers=[], subscribers=[], assignment=[])
    document["network"]["switches"] = []
    assert problems(tmp_path, document) == {("network", "switches"): "needs at least one switch"}


def test_unknown_forwarded_topic_is_rejected(tmp_path: Path) -> None:
    document = site()
    forwarded = {"from_broker": "b2", "topic": "gas/1", "rate_per_second": 1.0}
    document["network"]["broker"]["forwarded"] = [forwarded]
    reported = problems(tmp_path, document)
    assert "'gas/1'" in reported["network", "broker", "forwarded", 0, "topic"]


def test_long_list_of_known_names_is_shortened(tmp_path: Path) -> None:
    document = site(topics=[topic(f"smoke/{n}") for n in range(20)], publishers=[])
    document["subscribers"] = [subscriber_entry("command", "heat")]
    document["assignment"] = [assign("command", "heat")]
    message = problems(tmp_path, document)["subscribers", 0, "subscriptions", 0, "filter"]
    assert message.endswith("smoke/7, …")


def test_all_mistakes_are_reported_together_in_file_order(tmp_path: Path) -> None:
    document = site(planning={"drop_policy": "most"}, nmae="x")
    document["topics"][0]["name"] = "smoke/+"
    document["topics"][1]["event_bytes"] = 9000
    document["publishers"][0]["switch"] = "nowhere"
    document["publishers"][0]["publications"][1]["rate_per_second"] = -3
    document["publishers"][0]["publications"][2]["topic"] = "gas"
    document["subscribers"][0]["subscriptions"] += [
        {"filter": "heat/#/x", "utility": {"kind": "log", "weight": 1.0}},
        {"filter": "heat/1", "utility": {"kind": "magic"}},
    ]
    document["network"]["switches"][1]["priorities"] = 0
    document["network"]["links"] = [{"from": "s0", "to": "s7"}]
    document["assignment"].append(assign("nobody", "heat/1", drop_rate=1.5))
    file = write_scenario(tmp_path, document)
    with pytest.raises(InvalidScenarioFile) as caught:
        read_scenario(file)
    lines = [problem.line for problem in caught.value.problems]
    assert lines == sorted(line for line in lines if line is not None)
    assert {problem.path for problem in caught.value.problems} >= {
        ("planning", "drop_policy"),
        ("nmae",),
        ("topics", 0, "name"),
        ("topics", 1, "event_bytes"),
        ("publishers", 0, "switch"),
        ("publishers", 0, "publications", 1, "rate_per_second"),
        ("publishers", 0, "publications", 2, "topic"),
        ("subscribers", 0, "subscriptions", 1, "filter"),
        ("subscribers", 0, "subscriptions", 2, "utility"),
        ("network", "switches", 1, "priorities"),
        ("network", "links", 0, "to"),
        ("assignment", 1, "subscriber"),
        ("assignment", 1, "drop_rate"),
        ("assignment",),
    }
    assert f"{file}: {len(lines)} problems" in str(caught.value)


def test_duplicate_key_is_reported_with_other_mistakes(tmp_path: Path) -> None:
    document = site()
    document["subscribers"][0]["switch"] = "s9"
    text = Path(write_scenario(tmp_path, document)).read_text(encoding="utf-8") + "name: again\n"
    with pytest.raises(InvalidScenarioFile) as caught:
        read_scenario(write_scenario(tmp_path, text))
    assert [problem.path for problem in caught.value.problems] == [
        ("subscribers", 0, "switch"),
        ("name",),
    ]
