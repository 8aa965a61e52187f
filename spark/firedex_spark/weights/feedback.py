"""Check of feedback rows: which can be used, and how many are refused for which reason. Pure.

Later steps rely on this check: numbers are finite, names are valid in profiles, texts are UTF-8.
"""

from collections.abc import Callable
from math import inf
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from firedex.wire.mqtt_names import check_filter, check_topic
from firedex.wire.values import Identifier
from firedex_spark.records.columns import plain_columns, text_bytes
from firedex_spark.schemas import FEEDBACK_SCHEMA, FeedbackKind

__all__ = ["CHECKED_SCHEMA", "check_feedback"]

CHECKED_SCHEMA = pa.schema([*FEEDBACK_SCHEMA, ("problem", pa.string()), ("count", pa.int64())])
"""Valid rows have no ``problem``; each problem has one row with its ``count``."""
MIN_DWELL_SECONDS, MAX_DWELL_SECONDS = 0.001, 86_400.0
LATEST = 1e11
Booleans = NDArray[np.bool_]
IDENTIFIER: TypeAdapter[str] = TypeAdapter(Identifier)
NOT_A_TOPIC = "is not a valid topic"


def check_feedback(table: pa.Table) -> pa.Table:
    """Return the valid rows of ``FEEDBACK_SCHEMA``, and a row for each problem of the others."""
    rows = _Rows(plain_columns(table, FEEDBACK_SCHEMA))
    rows.check()
    return pa.concat_tables([rows.good(), rows.bad()])


class _Rows:
    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._good = np.ones(table.num_rows, dtype=bool)
        self._counts: dict[str, int] = {}

    def check(self) -> None:
        for name in FEEDBACK_SCHEMA.names:
            if name != "other_topic":
                self._refuse(f"{name} is missing", _is_missing(self._table.column(name)))
        for name in ("site", "rater"):
            self._refuse(f"{name} is not valid UTF-8", ~self._texts(name, lambda _text: True))
        self._refuse("kind is unknown", ~self._texts("kind", get_args(FeedbackKind).__contains__))
        for name in ("role", "phase"):
            self._refuse(f"{name} is not a valid identifier", ~self._texts(name, _is_identifier))
        self._refuse(f"topic {NOT_A_TOPIC}", ~self._texts("topic", _is_topic))
        at, value = self._numbers("at_seconds"), self._numbers("value")
        self._refuse("at_seconds is not a valid time", ~((at >= 0) & (at <= LATEST)))
        self._refuse("value is not a finite number", ~np.isfinite(value))
        self._check_values(value)
        self._check_choices()

    def _check_values(self, value: NDArray[np.float64]) -> None:
        for kind, is_valid, wrong in (
            ("rating", np.isin(value, [1, 2, 3, 4, 5]), "a rating is not 1 to 5"),
            ("acknowledgement", np.isin(value, [0, 1]), "an acknowledgement is not 0 or 1"),
            (
                "dwell",
                (value >= MIN_DWELL_SECONDS) & (value <= MAX_DWELL_SECONDS),
                "a dwell is not between 1 ms and 1 day",
            ),
            ("choice", value == 1, "a choice is not 1"),
        ):
            self._refuse(wrong, self._is(kind) & ~is_valid)

    def _check_choices(self) -> None:
        choice, other = self._is("choice"), self._table.column("other_topic")
        self._refuse("a choice has no other_topic", choice & _is_missing(other))
        legal = self._texts("other_topic", _is_topic)
        self._refuse(f"other_topic {NOT_A_TOPIC}", choice & ~legal)
        same = pc.equal(text_bytes(self._table.column("topic")), text_bytes(other)).fill_null(False)
        self._refuse("a choice has twice the same topic", choice & _array(same))

    def _refuse(self, reason: str, rows: Booleans) -> None:
        count = int((self._good & rows).sum())
        if count:
            self._counts[reason] = count
            self._good &= ~rows

    def _is(self, kind: str) -> Booleans:
        return self._texts("kind", kind.__eq__)

    def _numbers(self, name: str) -> NDArray[np.float64]:
        column = self._table.column(name)
        return np.asarray(column.cast(pa.float64()).fill_null(inf).to_numpy(), dtype=float)

    def _texts(self, name: str, is_valid: Callable[[str], bool]) -> Booleans:
        """Return where the text of a column is valid; each distinct text is checked once."""
        coded = text_bytes(self._table.column(name)).combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        answers = [_is_valid_text(is_valid, raw) for raw in coded.dictionary.to_pylist()]
        codes = coded.indices.fill_null(len(answers)).to_numpy(zero_copy_only=False)
        found: Booleans = np.array([*answers, False])[codes.astype(np.int64)]
        return found

    def good(self) -> pa.Table:
        valid = self._table.select(FEEDBACK_SCHEMA.names).filter(pa.array(self._good))
        choice = pa.array(self._is("choice")[self._good])
        columns: list[Any] = []
        for field in FEEDBACK_SCHEMA:
            column = valid.column(field.name)
            if pa.types.is_string(field.type):
                column = text_bytes(column)
            if field.name == "other_topic":  # only choices use it
                column = pc.if_else(choice, column, pa.scalar(None, column.type))
            columns.append(column.cast(field.type))
        columns += [pa.nulls(valid.num_rows, pa.string()), pa.repeat(1, valid.num_rows)]
        return pa.table(columns, schema=CHECKED_SCHEMA)

    def bad(self) -> pa.Table:
        rows = [{"problem": reason, "count": count} for reason, count in self._counts.items()]
        return pa.Table.from_pylist(rows, schema=CHECKED_SCHEMA)


def _array(column: Any) -> Booleans:
    return np.asarray(column.to_numpy(), dtype=bool)


def _is_missing(column: pa.ChunkedArray) -> Booleans:
    nothing = column.is_null()
    if not pa.types.is_floating(column.type):
        nothing = pc.or_(
            nothing, pc.equal(pc.binary_length(text_bytes(column)), 0).fill_null(False)
        )
    return _array(nothing)


def _is_valid_text(is_valid: Callable[[str], bool], raw: bytes) -> bool:
    try:
        return bool(is_valid(raw.decode()))
    except UnicodeDecodeError:
        return False


def _is_identifier(text: str) -> bool:
    try:
        IDENTIFIER.validate_python(text)
    except ValidationError:
        return False
    return True


def _is_topic(text: str) -> bool:
    """Return whether a profile can have a rule for the topic and for its class."""
    try:
        check_topic(text)
        check_filter(text)
        check_filter(f"{text.split('/', 1)[0]}/#")
    except ValueError:
        return False
    return True
