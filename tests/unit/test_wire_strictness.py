"""What the contract refuses, by name and with its path; what it tolerates when asked to."""

import json
from typing import Any

import pytest
from small_site import site
from wire_examples import EXAMPLES

from firedex import wire
from firedex.wire import InvalidValue, Scenario, WireError, from_json, from_plain, to_plain

NAN, INFINITY = float("nan"), float("inf")
RECORD = to_plain(next(e for e in EXAMPLES if isinstance(e, wire.DeliveryRecord)))
STATISTICS = to_plain(next(e for e in EXAMPLES if isinstance(e, wire.Statistics)))
SWITCH = {"id": "s1", "bandwidth_bits_per_second": 1e6}


def refused(of: type[Any], data: object) -> dict[tuple[str | int, ...], str]:
    """The problems found, by path."""
    with pytest.raises(InvalidValue) as caught:
        from_plain(of, data)
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: type(e).__name__)
def test_an_unknown_key_is_refused_by_name_and_tolerated_on_demand(example: Any) -> None:
    data = {**to_plain(example), "zzz_unheard_of": 1}
    problems = refused(type(example), data)
    assert "unknown key 'zzz_unheard_of'" in problems["zzz_unheard_of",]
    assert from_plain(type(example), data, tolerant=True) == example
    assert from_json(type(example), json.dumps(data), tolerant=True) == example


def test_an_unknown_key_comes_with_the_likely_one() -> None:
    problems = refused(wire.Switch, {**SWITCH, "prioritys": 8})
    assert problems["prioritys",] == "unknown key 'prioritys'; did you mean 'priorities'?"


def test_an_unknown_key_that_resembles_none_comes_with_all() -> None:
    problems = refused(wire.Buffer, {"kind": "shared-push-out", "packets": 1, "colour": "red"})
    assert problems["colour",] == "unknown key 'colour'; known are kind, packets"


def test_unknown_keys_are_found_at_every_depth() -> None:
    document = site()
    document["plannning"] = {}
    document["topics"][1]["evnt_bytes"] = 3
    document["publishers"][0]["publications"][2]["arivals"] = "poisson"
    document["subscribers"][0]["subscriptions"][0]["utility"]["wieght"] = 3.0
    document["network"]["broker"]["in_event_per_second"] = 3.0
    document["assignment"][0]["prio"] = 1
    problems = refused(Scenario, document)
    suggestions = {
        path: message.rpartition("did you mean ")[2] for path, message in problems.items()
    }
    assert suggestions == {
        ("plannning",): "'planning'?",
        ("topics", 1, "evnt_bytes"): "'event_bytes'?",
        ("publishers", 0, "publications", 2, "arivals"): "'arrivals'?",
        ("subscribers", 0, "subscriptions", 0, "utility", "wieght"): "'weight'?",
        ("network", "broker", "in_event_per_second"): "'in_events_per_second'?",
        ("assignment", 0, "prio"): "'priority'?",
    }


def test_unknown_keys_are_tolerated_at_every_depth() -> None:
    document = site()
    document["topics"][1]["colour"] = "red"
    document["subscribers"][0]["subscriptions"][0]["utility"]["colour"] = "red"
    assert from_plain(Scenario, document, tolerant=True) == from_plain(Scenario, site())


def test_tolerance_extends_to_unknown_keys_only() -> None:
    with pytest.raises(InvalidValue, match="weight"):
        from_plain(wire.LogUtility, {"weight": -1.0}, tolerant=True)


@pytest.mark.parametrize("wrong", ["3", True, False, None, [3.0], {}, NAN, INFINITY, -INFINITY, -1])
@pytest.mark.parametrize(
    ("of", "data", "key"),
    [
        (wire.LogUtility, {}, "weight"),
        (wire.PowerUtility, {"weight": 1.0}, "exponent"),
        (wire.CappedUtility, {"weight": 1.0}, "enough"),
        (wire.Publication, {"topic": "a"}, "rate_per_second"),
        (wire.Switch, {"id": "s1"}, "bandwidth_bits_per_second"),
        (wire.Switch, SWITCH, "error_rate"),
        (wire.Switch, SWITCH, "priorities"),
        (wire.Switch, SWITCH, "propagation_seconds"),
        (wire.Topic, {"name": "a"}, "event_bytes"),
        (wire.Planning, {}, "rho_tolerance"),
        (wire.Planning, {}, "flows_per_subscriber"),
        (
            wire.Assignment,
            {"subscriber": "c", "filter": "a", "flow": 0, "priority": 0},
            "drop_rate",
        ),
        (wire.Assignment, {"subscriber": "c", "filter": "a", "flow": 0}, "priority"),
        (wire.PacketLimit, {"burst_packets": 1}, "packets_per_second"),
    ],
)
def test_a_number_is_a_finite_number_and_nothing_else(
    of: type[Any], data: dict[str, Any], key: str, wrong: object
) -> None:
    assert set(refused(of, {**data, key: wrong})) == {(key,)}


@pytest.mark.parametrize("wrong", ["3", True, NAN, INFINITY])
def test_a_clock_offset_is_a_finite_number_of_either_sign(wrong: object) -> None:
    assert from_plain(wire.Statistics, {**STATISTICS, "clock_offset_seconds": -1.5})
    assert set(refused(wire.Statistics, {**STATISTICS, "clock_offset_seconds": wrong})) == {
        ("clock_offset_seconds",)
    }


@pytest.mark.parametrize("wrong", ["yes", "false", 1, 0.0])
def test_a_truth_value_is_true_or_false_and_nothing_else(wrong: object) -> None:
    assert set(refused(wire.Switch, {**SWITCH, "managed": wrong})) == {("managed",)}


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_what_json_does_not_have_is_refused_in_json_too(literal: str) -> None:
    with pytest.raises(InvalidValue, match="weight"):
        from_json(wire.LogUtility, f'{{"weight": {literal}}}')


def test_an_integer_may_stand_for_a_rate_but_a_fraction_not_for_a_count() -> None:
    assert from_plain(wire.LogUtility, {"weight": 2}).weight == 2.0
    assert (
        "must be a valid integer"
        in refused(wire.Topic, {"name": "a", "event_bytes": 51.0})["event_bytes",]
    )


@pytest.mark.parametrize("name", ["", " ", "-x", "a b", "a/b", "a->b", "x" * 129, "é", "a\n"])
def test_an_identifier_is_short_and_plain(name: str) -> None:
    assert set(refused(wire.Switch, {**SWITCH, "id": name})) == {("id",)}


@pytest.mark.parametrize("name", ["a", "0", "engine1", "Crew_1.a:b@c-d", "x" * 128])
def test_an_identifier_may_be_any_usual_name(name: str) -> None:
    assert from_plain(wire.Switch, {**SWITCH, "id": name}).id == name


def test_an_ipv6_address_is_refused() -> None:
    endpoints = to_plain(next(e for e in EXAMPLES if isinstance(e, wire.FlowEndpoints)))
    assert set(refused(wire.FlowEndpoints, {**endpoints, "gateway_address": "::1"})) == {
        ("gateway_address",)
    }


@pytest.mark.parametrize("port", [0, 65_536])
def test_a_port_is_a_port(port: int) -> None:
    endpoints = to_plain(next(e for e in EXAMPLES if isinstance(e, wire.FlowEndpoints)))
    assert set(refused(wire.FlowEndpoints, {**endpoints, "gateway_port": port})) == {
        ("gateway_port",)
    }


@pytest.mark.parametrize(
    "outcome",
    ["dropped-at-gateway", "dropped-at-meter", "dropped-at-buffer", "lost-on-link", "in-flight"],
)
def test_what_was_not_delivered_was_not_received(outcome: str) -> None:
    lost = {**RECORD, "outcome": outcome, "received_at_seconds": None}
    assert from_plain(wire.DeliveryRecord, lost).received_at_seconds is None
    problems = refused(wire.DeliveryRecord, {**RECORD, "outcome": outcome})
    assert repr(outcome) in "".join(problems.values())


def test_what_was_delivered_was_received() -> None:
    problems = refused(wire.DeliveryRecord, {**RECORD, "received_at_seconds": None})
    assert "received_at_seconds" in "".join(problems.values())


def test_an_error_carries_every_problem_with_its_path() -> None:
    data = {"filter": "smoke/#/x", "utility": {"kind": "log", "weight": -1}, "qos": 3}
    with pytest.raises(WireError) as caught:
        from_plain(wire.Subscription, data)
    error = caught.value
    assert isinstance(error, InvalidValue)
    assert {p.path for p in error.problems} == {("filter",), ("utility", "weight"), ("qos",)}
    assert all(str(problem) in str(error) for problem in error.problems)


def test_json_and_plain_data_name_the_same_paths() -> None:
    data = {"filter": "smoke/#", "utility": {"kind": "log", "weight": -1}}
    with pytest.raises(InvalidValue) as caught:
        from_json(wire.Subscription, json.dumps(data))
    assert [p.path for p in caught.value.problems] == list(refused(wire.Subscription, data))


def test_text_that_is_not_json_is_an_invalid_value() -> None:
    with pytest.raises(InvalidValue, match="JSON"):
        from_json(wire.LogUtility, "{weight: 1")


def test_an_unknown_kind_of_utility_is_told_which_there_are() -> None:
    problems = refused(wire.Subscription, {"filter": "a", "utility": {"kind": "quadratic"}})
    assert list(problems) == [("utility",)]
    assert all(kind in problems["utility",] for kind in ("log", "linear", "capped", "power"))


def test_a_utility_without_a_kind_is_told_which_there_are() -> None:
    problems = refused(wire.Subscription, {"filter": "a", "utility": {"weight": 1.0}})
    assert "piecewise-linear" in problems["utility",]
