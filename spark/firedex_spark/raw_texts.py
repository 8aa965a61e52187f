"""Columns of a Parquet file as they are worked on: texts as bytes, before they are looked at."""

import pyarrow as pa

__all__ = ["raw_texts", "usual_columns"]


def usual_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Texts that are views plain, which not everything can be done with; nothing at all, typed."""
    for number, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(pa.string()))
        elif pa.types.is_null(field.type):
            kind = schema.field(field.name).type
            table = table.set_column(number, field.name, table.column(number).cast(kind))
    return table


def raw_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts, plain or as a dictionary, as the bytes that are there."""
    if pa.types.is_dictionary(column.type):
        plain = [chunk.dictionary_decode() for chunk in column.chunks]
        column = pa.chunked_array(plain, column.type.value_type)
    return column.cast(pa.binary())
