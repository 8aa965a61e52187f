"""Every value of the contract: JSON both ways, frozen, slotted, keyword-only, units in names."""

from dataclasses import FrozenInstanceError, fields
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any

import pytest
from wire_examples import ENDPOINTS, EXAMPLES, LINK, VALUE_TYPES, WHEN

from firedex import wire
from firedex.wire import from_json, from_plain, to_json, to_plain

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


def test_there_is_an_example_of_every_exported_value() -> None:
    assert {type(example) for example in EXAMPLES} == set(VALUE_TYPES)


@each_example
def test_a_value_survives_json(example: Any) -> None:
    assert from_json(type(example), to_json(example)) == example


@each_example
def test_a_value_survives_plain_data(example: Any) -> None:
    assert from_plain(type(example), to_plain(example)) == example


@each_example
def test_a_value_is_frozen(example: Any) -> None:
    name = fields(example)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(example, name, getattr(example, name))


@each_example
def test_a_value_has_slots_and_takes_nothing_more(example: Any) -> None:
    assert not hasattr(example, "__dict__")
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(example, "something_else", 1)


@each_example
def test_a_value_is_made_by_keyword_only(example: Any) -> None:
    values = [getattr(example, field.name) for field in fields(example)]
    with pytest.raises((TypeError, ValueError), match=r"positional|Unexpected"):
        type(example)(*values)


@each_example
def test_a_value_is_hashable_and_equal_by_content(example: Any) -> None:
    again = from_plain(type(example), to_plain(example))
    assert again is not example
    assert hash(again) == hash(example)


@pytest.mark.parametrize("of", VALUE_TYPES, ids=lambda of: of.__name__)
def test_quantities_carry_their_unit_in_their_name(of: type[Any]) -> None:
    unnamed = [
        field.name
        for field in fields(of)
        if field.name.startswith(QUANTITIES)
        and field.name not in NOT_QUANTITIES
        and not field.name.endswith(UNITS)
    ]
    assert unnamed == []


def test_a_links_origin_is_called_from_outside() -> None:
    assert to_plain(LINK) == {"from": "s1", "to": "s2", "bandwidth_bits_per_second": 500_000.0}


def test_json_can_be_indented_for_people() -> None:
    assert to_json(wire.LogUtility(weight=1.0), indent=2) == (
        '{\n  "kind": "log",\n  "weight": 1.0\n}'
    )


def test_addresses_are_addresses_inside_and_text_outside() -> None:
    assert ENDPOINTS.gateway_address == IPv4Address("10.0.0.1")
    assert to_plain(ENDPOINTS)["gateway_address"] == "10.0.0.1"


def test_times_keep_their_zone() -> None:
    beat = from_plain(
        wire.Heartbeat, {"part": "b1", "kind": "broker", "started_at": WHEN, "sent_at": WHEN}
    )
    assert beat.started_at == datetime.fromisoformat(WHEN)
    assert beat.started_at.tzinfo is not None


def test_the_utility_comes_back_as_the_kind_it_was() -> None:
    given = {"filter": "a", "utility": {"kind": "power", "weight": 1.0, "exponent": 0.5}}
    made = from_plain(wire.Subscription, given)
    assert made.utility == wire.PowerUtility(weight=1.0, exponent=0.5)


def test_a_path_is_written_as_people_read_it() -> None:
    path = ("publishers", 0, "publications", 1, "topic")
    assert wire.format_path(path) == "publishers[0].publications[1].topic"
    assert wire.format_path(()) == "(top level)"
