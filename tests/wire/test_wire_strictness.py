"""Validation of wire types: rejected values, error messages, and the tolerant mode."""

import json
from typing import Any

import pytest

from firedex import wire
from firedex.wire import InvalidValue, Scenario, WireError, from_json, from_plain, to_plain
from tests.support.small_site import site
from tests.wire.wire_examples import EXAMPLES

NAN, INFINITY = float("nan"), float("inf")
RECORD = to_plain(next(e for e in EXAMPLES if isinstance(e, wire.DeliveryRecord)))
STATISTICS = to_plain(next(e for e in EXAMPLES if isinstance(e, wire.Statistics)))
SWITCH = {"id": "s1", "bandwidth_bits_per_second": 1e6}


def validation_problems(value_type: type[Any], data: object) -> dict[tuple[str | int, ...], str]:
    """Return the problems of invalid data, by path."""
    with pytest.raises(InvalidValue) as caught:
        from_plain(value_type, data)
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: type(e).__name__)
def test_unknown_key_is_rejected_unless_tolerant(example: Any) -> None:
    data = {**to_plain(example), "zzz_unknown": 1}
    problems = validation_problems(type(example), data)
    assert "unknown key 'zzz_unknown'" in problems["zzz_unknown",]
    assert from_plain(type(example), data, tolerant=True) == example
    assert from_json(type(example), json.dumps(data), tolerant=True) == example


def test_error_for_unknown_key_suggests_similar_key() -> None:
    problems = validation_problems(wire.Switch, {**SWITCH, "prioritys": 8})
    assert problems["prioritys",] == "unknown key 'prioritys'; did you mean 'priorities'?"


def test_error_for_unknown_key_lists_all_keys_if_none_is_similar() -> None:
    problems = validation_problems(
        wire.Buffer, {"kind": "shared-push-out", "packets": 1, "colour": "red"}
    )
    assert problems["colour",] == "unknown key 'colour'; known are kind, packets"


def test_unknown_keys_are_rejected_at_every_depth() -> None:
    document = site()
    document["plannning"] = {}
    document["topics"][1]["evnt_bytes"] = 3
    document["publishers"][0]["publications"][2]["arivals"] = "poisson"
    document["subscribers"][0]["subscriptions"][0]["utility"]["wieght"] = 3.0
    document["network"]["broker"]["in_event_per_second"] = 3.0
    document["assignment"][0]["prio"] = 1
    problems = validation_problems(Scenario, document)
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


def test_tolerant_mode_rejects_invalid_values() -> None:
    with pytest.raises(InvalidValue, match="weight"):
        from_plain(wire.LogUtility, {"weight": -1.0}, tolerant=True)


@pytest.mark.parametrize("wrong", ["3", True, False, None, [3.0], {}, NAN, INFINITY, -INFINITY, -1])
@pytest.mark.parametrize(
    ("value_type", "data", "key"),
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
def test_number_field_rejects_other_types_and_infinity(
    value_type: type[Any], data: dict[str, Any], key: str, wrong: object
) -> None:
    assert set(validation_problems(value_type, {**data, key: wrong})) == {(key,)}


@pytest.mark.parametrize("wrong", ["3", True, NAN, INFINITY])
def test_clock_offset_may_be_negative_but_must_be_finite(wrong: object) -> None:
    assert from_plain(wire.Statistics, {**STATISTICS, "clock_offset_seconds": -1.5})
    assert set(
        validation_problems(wire.Statistics, {**STATISTICS, "clock_offset_seconds": wrong})
    ) == {("clock_offset_seconds",)}


@pytest.mark.parametrize("wrong", ["yes", "false", 1, 0.0])
def test_boolean_field_rejects_other_types(wrong: object) -> None:
    assert set(validation_problems(wire.Switch, {**SWITCH, "managed": wrong})) == {("managed",)}


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_rejected_in_json(literal: str) -> None:
    with pytest.raises(InvalidValue, match="weight"):
        from_json(wire.LogUtility, f'{{"weight": {literal}}}')


def test_integer_is_accepted_as_float_but_float_not_as_integer() -> None:
    assert from_plain(wire.LogUtility, {"weight": 2}).weight == 2.0
    assert (
        "must be a valid integer"
        in validation_problems(wire.Topic, {"name": "a", "event_bytes": 51.0})["event_bytes",]
    )


@pytest.mark.parametrize("name", ["", " ", "-x", "a b", "a/b", "a->b", "x" * 129, "é", "a\n"])
def test_invalid_identifier_is_rejected(name: str) -> None:
    assert set(validation_problems(wire.Switch, {**SWITCH, "id": name})) == {("id",)}


@pytest.mark.parametrize("name", ["a", "0", "engine1", "Crew_1.a:b@c-d", "x" * 128])
def test_valid_identifier_is_accepted(name: str) -> None:
    assert from_plain(wire.Switch, {**SWITCH, "id": name}).id == name


def test_ipv6_address_is_rejected() -> None:
    endpoints = to_plain(next(e for e in EXAMPLES if isinstance(e, wire.FlowEndpoints)))
    assert set(
        validation_problems(wire.FlowEndpoints, {**endpoints, "gateway_address": "::1"})
    ) == {("gateway_address",)}


@pytest.mark.parametrize("port", [0, 65_536])
def test_port_out_of_range_is_rejected(port: int) -> None:
    endpoints = to_plain(next(e for e in EXAMPLES if isinstance(e, wire.FlowEndpoints)))
    assert set(validation_problems(wire.FlowEndpoints, {**endpoints, "gateway_port": port})) == {
        ("gateway_port",)
    }


@pytest.mark.parametrize(
    "outcome",
    ["dropped-at-gateway", "dropped-at-meter", "dropped-at-buffer", "lost-on-link", "in-flight"],
)
def test_record_of_lost_event_must_not_have_a_receive_time(outcome: str) -> None:
    lost = {**RECORD, "outcome": outcome, "received_at_seconds": None}
    assert from_plain(wire.DeliveryRecord, lost).received_at_seconds is None
    problems = validation_problems(wire.DeliveryRecord, {**RECORD, "outcome": outcome})
    assert repr(outcome) in "".join(problems.values())


def test_record_of_delivered_event_must_have_a_receive_time() -> None:
    problems = validation_problems(wire.DeliveryRecord, {**RECORD, "received_at_seconds": None})
    assert "received_at_seconds" in "".join(problems.values())


def test_error_contains_every_problem_with_its_path() -> None:
    data = {"filter": "smoke/#/x", "utility": {"kind": "log", "weight": -1}, "qos": 3}
    with pytest.raises(WireError) as caught:
        from_plain(wire.Subscription, data)
    error = caught.value
    assert isinstance(error, InvalidValue)
    assert {p.path for p in error.problems} == {("filter",), ("utility", "weight"), ("qos",)}
    assert all(str(problem) in str(error) for problem in error.problems)


def test_problems_have_the_same_paths_in_json_and_plain_data() -> None:
    data = {"filter": "smoke/#", "utility": {"kind": "log", "weight": -1}}
    with pytest.raises(InvalidValue) as caught:
        from_json(wire.Subscription, json.dumps(data))
    assert [p.path for p in caught.value.problems] == list(
        validation_problems(wire.Subscription, data)
    )


def test_text_that_is_not_json_is_rejected() -> None:
    with pytest.raises(InvalidValue, match="JSON"):
        from_json(wire.LogUtility, "{weight: 1")


def test_error_for_unknown_utility_kind_lists_known_kinds() -> None:
    problems = validation_problems(
        wire.Subscription, {"filter": "a", "utility": {"kind": "quadratic"}}
    )
    assert list(problems) == [("utility",)]
    assert all(kind in problems["utility",] for kind in ("log", "linear", "capped", "power"))


def test_error_for_missing_utility_kind_lists_known_kinds() -> None:
    problems = validation_problems(wire.Subscription, {"filter": "a", "utility": {"weight": 1.0}})
    assert "piecewise-linear" in problems["utility",]
