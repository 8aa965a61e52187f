"""Mistakes that take several lines of a scenario file to make, and all of them at once."""

from pathlib import Path

import pytest
from small_site import Document, assign, path_of_two_switches, site, subscribed, topic, write

from firedex.scenario_file import InvalidScenarioFile, read_scenario
from firedex.wire import Scenario, from_plain


def problems(tmp_path: Path, document: Document) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(InvalidScenarioFile) as caught:
        read_scenario(write(tmp_path, document))
    return {problem.path: problem.message for problem in caught.value.problems}


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    assert read_scenario(write(tmp_path, site())) == from_plain(Scenario, site())


def test_large_events_are_fine_over_tcp_throughout(tmp_path: Path) -> None:
    document = site(transport="tcp")
    document["topics"][0]["event_bytes"] = 1_000_000
    assert read_scenario(write(tmp_path, document)).topics[0].event_bytes == 1_000_000


def test_the_largest_datagram_is_fine(tmp_path: Path) -> None:
    document = site()
    document["topics"][0]["event_bytes"] = 1463
    assert read_scenario(write(tmp_path, document)).topics[0].event_bytes == 1463


def test_large_events_are_refused_if_one_party_speaks_udp(tmp_path: Path) -> None:
    document = site(transport="tcp")
    document["topics"][0]["event_bytes"] = 1_000_000
    document["subscribers"][0]["transport"] = "udp"
    assert list(problems(tmp_path, document)) == [("topics", 0, "event_bytes")]


def test_large_events_are_fine_if_every_party_speaks_tcp_by_itself(tmp_path: Path) -> None:
    document = site(transport="udp")
    document["topics"][0]["event_bytes"] = 1_000_000
    document["subscribers"][0]["transport"] = "tcp"
    document["publishers"][0]["transport"] = "tcp"
    assert read_scenario(write(tmp_path, document)).transport == "udp"


def test_a_stamp_leaves_less_room_in_a_datagram(tmp_path: Path) -> None:
    document = site(stamped_events=True)
    document["topics"][0]["event_bytes"] = 1440
    found = problems(tmp_path, document)
    assert "at most 1439 do beside the event stamp" in found["topics", 0, "event_bytes"]
    document["topics"][0]["event_bytes"] = 1439
    assert read_scenario(write(tmp_path, document))


def test_a_loop_of_links_needs_to_know_where_the_broker_is(tmp_path: Path) -> None:
    document = path_of_two_switches()
    document["network"]["links"].append({"from": "s2", "to": "s1"})
    found = problems(tmp_path, document)
    assert list(found) == [("subscribers", 0, "switch")]
    assert "give network.broker.switch" in found["subscribers", 0, "switch"]
    document["network"]["broker"]["switch"] = "s1"
    assert read_scenario(write(tmp_path, document))


def test_a_switch_that_no_link_reaches_is_named(tmp_path: Path) -> None:
    document = path_of_two_switches()
    document["network"]["switches"].append({"id": "s3", "bandwidth_bits_per_second": 1e6})
    document["network"]["switches"].append({"id": "s4", "bandwidth_bits_per_second": 1e6})
    document["network"]["links"].append({"from": "s3", "to": "s4"})
    document["network"]["broker"]["switch"] = "s1"
    document["subscribers"][0]["switch"] = "s4"
    found = problems(tmp_path, document)
    assert found == {
        ("subscribers", 0, "switch"): "no links lead from the broker's switch 's1' to 's4'"
    }


def test_the_classes_on_offer_are_those_of_the_poorest_switch_on_the_way(tmp_path: Path) -> None:
    document = path_of_two_switches(priorities=2)
    document["assignment"] = [assign("command", "smoke/#", priority=2)]
    found = problems(tmp_path, document)
    assert list(found) == [("assignment", 0, "priority")]
    assert "offer 2, numbered 0 to 1" in found["assignment", 0, "priority"]


def test_unmanaged_switches_on_the_way_do_not_limit_the_classes(tmp_path: Path) -> None:
    document = path_of_two_switches(managed=False, priorities=1)
    document["assignment"] = [assign("command", "smoke/#", priority=7)]
    assert read_scenario(write(tmp_path, document))


def test_a_site_without_switches_is_refused(tmp_path: Path) -> None:
    document = site(publishers=[], subscribers=[], assignment=[])
    document["network"]["switches"] = []
    assert problems(tmp_path, document) == {("network", "switches"): "needs at least one switch"}


def test_forwarded_topics_must_exist(tmp_path: Path) -> None:
    document = site()
    forwarded = {"from_broker": "b2", "topic": "gas/1", "rate_per_second": 1.0}
    document["network"]["broker"]["forwarded"] = [forwarded]
    found = problems(tmp_path, document)
    assert "'gas/1'" in found["network", "broker", "forwarded", 0, "topic"]


def test_a_long_list_of_known_names_is_cut_short(tmp_path: Path) -> None:
    document = site(topics=[topic(f"smoke/{n}") for n in range(20)], publishers=[])
    document["subscribers"] = [subscribed("command", "heat")]
    document["assignment"] = [assign("command", "heat")]
    message = problems(tmp_path, document)["subscribers", 0, "subscriptions", 0, "filter"]
    assert message.endswith("smoke/7, …")


def test_every_mistake_of_a_file_is_reported_at_once_in_its_order(tmp_path: Path) -> None:
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
    file = write(tmp_path, document)
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


def test_a_scenario_with_a_twice_given_key_and_other_mistakes_reports_both(tmp_path: Path) -> None:
    document = site()
    document["subscribers"][0]["switch"] = "s9"
    text = Path(write(tmp_path, document)).read_text(encoding="utf-8") + "name: again\n"
    with pytest.raises(InvalidScenarioFile) as caught:
        read_scenario(write(tmp_path, text))
    assert [problem.path for problem in caught.value.problems] == [
        ("subscribers", 0, "switch"),
        ("name",),
    ]
