"""Feedback rows: which count, and why the others are refused."""

from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest

from firedex_spark.schemas import FEEDBACK_SCHEMA
from firedex_spark.weights.feedback import check_feedback

RATING = {
    "site": "tower",
    "at_seconds": 1.0,
    "rater": "ana",
    "role": "crew",
    "phase": "size-up",
    "topic": "smoke/1",
    "kind": "rating",
    "value": 4.0,
    "other_topic": None,
}


CHOICE = RATING | {"kind": "choice", "value": 1.0, "other_topic": "heat/1"}


TOPIC = "is not a valid topic"


def table_of(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=FEEDBACK_SCHEMA)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        *[
            (RATING | {name: None}, f"{name} is missing")
            for name in RATING
            if name != "other_topic"
        ],
        (RATING | {"rater": ""}, "rater is missing"),
        (RATING | {"kind": "applause"}, "kind is unknown"),
        *[(RATING | {"value": v}, "value is not a finite number") for v in (nan, inf, -inf)],
        *[(RATING | {"value": v}, "a rating is not 1 to 5") for v in (0.0, 6.0, 2.5, 1e30, -1e300)],
        (RATING | {"kind": "acknowledgement", "value": 2.0}, "an acknowledgement is not 0 or 1"),
        *[
            (
                RATING | {"kind": "dwell", "value": v},
                "a dwell is not between 1 ms and 1 day",
            )
            for v in (-1.0, 0.0, 1e-300, 1e9, 1e30)
        ],
        (CHOICE | {"value": 2.0}, "a choice is not 1"),
        (CHOICE | {"other_topic": None}, "a choice has no other_topic"),
        (CHOICE | {"other_topic": "smoke/1"}, "a choice has twice the same topic"),
        (CHOICE | {"other_topic": "heat/#"}, f"other_topic {TOPIC}"),
        (RATING | {"role": "a crew"}, "role is not a valid identifier"),
        (RATING | {"role": "-crew\n"}, "role is not a valid identifier"),
        (RATING | {"phase": "größe"}, "phase is not a valid identifier"),
        (RATING | {"phase": "p" * 129}, "phase is not a valid identifier"),
        *[(RATING | {"topic": t}, f"topic {TOPIC}") for t in ("smoke/#", "+", "a\0", "$share/g/t")],
        (RATING | {"topic": "t" * 65_535}, f"topic {TOPIC}"),
        *[
            (RATING | {"at_seconds": v}, "at_seconds is not a valid time")
            for v in (nan, inf, -1.0, 1e30)
        ],
    ],
)
def test_bad_row_is_counted_by_reason(row: dict[str, Any], problem: str) -> None:
    found = check_feedback(table_of(RATING, row, CHOICE, row)).to_pylist()
    good = [{"problem": None, "count": 1, **r} for r in (RATING, CHOICE)]
    blank = dict.fromkeys(RATING)
    assert found == [*good, {**blank, "problem": problem, "count": 2}]


def test_invalid_utf8_is_refused() -> None:
    raw = pa.array([b"smoke/1", b"\xff\xfe"], pa.binary()).view(pa.string())
    for name, problem in (
        ("topic", f"topic {TOPIC}"),
        ("rater", "rater is not valid UTF-8"),
        ("kind", "kind is unknown"),
        ("other_topic", f"other_topic {TOPIC}"),
    ):
        table = table_of(CHOICE, CHOICE)
        if name == "kind":
            raw = pa.array([b"choice", b"\xff"], pa.binary()).view(pa.string())
        elif name == "other_topic":
            raw = pa.array([b"heat/1", b"\xff"], pa.binary()).view(pa.string())
        column = table.column_names.index(name)
        table = table.set_column(column, FEEDBACK_SCHEMA.field(name), raw)
        found = check_feedback(table).to_pylist()
        assert [(row["problem"], row["count"]) for row in found] == [(None, 1), (problem, 1)]


def test_other_topic_is_used_for_choices_only() -> None:
    found = check_feedback(table_of(RATING | {"other_topic": "nonsense/#"})).to_pylist()
    assert found == [{**RATING, "problem": None, "count": 1}]


def test_empty_and_dictionary_columns_are_read() -> None:
    assert check_feedback(table_of()).num_rows == 0
    table = table_of(RATING, CHOICE)
    coded = table.set_column(5, "topic", table.column("topic").dictionary_encode())
    assert check_feedback(coded).equals(check_feedback(table))


def test_other_text_and_integer_types_are_read() -> None:
    plain = table_of(RATING, RATING | {"value": 9.0})
    other = plain
    for name in ("site", "rater", "topic", "kind"):
        place = FEEDBACK_SCHEMA.get_field_index(name)
        other = other.set_column(place, name, pa.array(plain[name].to_pylist(), pa.string_view()))
    place = FEEDBACK_SCHEMA.get_field_index("other_topic")
    other = other.set_column(place, "other_topic", pa.nulls(2))
    assert check_feedback(other).equals(check_feedback(plain))
