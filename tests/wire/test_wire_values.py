"""Properties of all wire types: JSON round trip, frozen, slots, keyword-only, units in names."""

from dataclasses import FrozenInstanceError, fields
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any

import pytest

from firedex import wire
from firedex.wire import from_json, from_plain, to_json, to_plain
from tests.wire.wire_examples import ENDPOINTS, EXAMPLES, LINK, VALUE_TYPES

UNITS = ("_seconds", "_per_second", "_bytes", "_packets", "_events")
QUANTITIES = ("delay", "deadline", "bandwidth", "propagation", "window", "guaranteed", "burst")
NOT_QUANTITIES = {
    "deadline_percentile",
    "deadline_met",
    "deadlines_missed",
    "window_start",
}


def example_id(example: object) -> str:
    return type(example).__name__


each_example = pytest.mark.parametrize("example", EXAMPLES, ids=example_id)


def test_every_exported_type_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == set(VALUE_TYPES)


@each_example
def test_value_round_trips_through_json(example: Any) -> None:
    assert from_json(type(example), to_json(example)) == example


@each_example
def test_value_round_trips_through_plain_data(example: Any) -> None:
    assert from_plain(type(example), to_plain(example)) == example


@each_example
def test_value_is_frozen(example: Any) -> None:
    name = fields(example)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(example, name, getattr(example, name))


@each_example
def test_value_has_slots_and_no_other_attributes(example: Any) -> None:
    assert not hasattr(example, "__dict__")
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(example, "something_else", 1)


@each_example
def test_value_is_constructed_by_keyword_only(example: Any) -> None:
    values = [getattr(example, field.name) for field in fields(example)]
    with pytest.raises((TypeError, ValueError), match=r"positional|Unexpected"):
        type(example)(*values)


@each_example
def test_equal_values_have_equal_hashes(example: Any) -> None:
    decoded = from_plain(type(example), to_plain(example))
    assert decoded is not example
    assert hash(decoded) == hash(example)


@pytest.mark.parametrize("value_type", VALUE_TYPES, ids=lambda value_type: value_type.__name__)
def test_field_names_of_quantities_contain_the_unit(value_type: type[Any]) -> None:
    without_unit = [
        field.name
        for field in fields(value_type)
        if field.name.startswith(QUANTITIES)
        and field.name not in NOT_QUANTITIES
        and not field.name.endswith(UNITS)
    ]
    assert without_unit == []


def test_link_origin_is_encoded_as_from() -> None:
    assert to_plain(LINK) == {"from": "s1", "to": "s2", "bandwidth_bits_per_second": 500_000.0}


def test_json_can_be_indented() -> None:
    assert to_json(wire.LogUtility(weight=1.0), indent=2) == (
        '{\n  "kind": "log",\n  "weight": 1.0\n}'
    )


def test_ip_address_is_encoded_as_text() -> None:
    assert ENDPOINTS.gateway_address == IPv4Address("10.0.0.1")
    assert to_plain(ENDPOINTS)["gateway_address"] == "10.0.0.1"


def test_timestamp_keeps_its_time_zone() -> None:
    text = "2025-03-01T12:00:00Z"
    heartbeat = from_plain(
        wire.Heartbeat, {"part": "b1", "kind": "broker", "started_at": text, "sent_at": text}
    )
    assert heartbeat.started_at == datetime.fromisoformat(text)
    assert heartbeat.started_at.tzinfo is not None


def test_utility_is_decoded_to_the_type_of_its_kind() -> None:
    data = {"filter": "a", "utility": {"kind": "power", "weight": 1.0, "exponent": 0.5}}
    subscription = from_plain(wire.Subscription, data)
    assert subscription.utility == wire.PowerUtility(weight=1.0, exponent=0.5)


def test_format_path_uses_dots_and_brackets() -> None:
    path = ("publishers", 0, "publications", 1, "topic")
    assert wire.format_path(path) == "publishers[0].publications[1].topic"
    assert wire.format_path(()) == "(top level)"
