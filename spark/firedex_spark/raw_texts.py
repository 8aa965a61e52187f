"""Texts of a Parquet file as bytes: nobody says that they are text before they are looked at."""

import pyarrow as pa

__all__ = ["raw_texts"]


def raw_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts, plain or as a dictionary, as the bytes that are there."""
    if pa.types.is_dictionary(column.type):
        plain = [chunk.dictionary_decode() for chunk in column.chunks]
        column = pa.chunked_array(plain, column.type.value_type)
    return column.cast(pa.binary())
