"""Delivery records of a folder: all by site and day, or all flat, since copies have to meet."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from firedex_spark.errors import MixedLayout
from firedex_spark.record_columns import TIME
from firedex_spark.record_files import CheckedFiles, check_files, files_under, site_of
from firedex_spark.schemas import DELIVERY_SCHEMA

__all__ = ["checked_deliveries", "flat_beside_sites"]


def checked_deliveries(records: Path) -> CheckedFiles:
    """What can be read of the records there; what cannot, and what is of another layout, is not."""
    files = files_under(records, "delivery records")
    odd = flat_beside_sites(files)
    names = {bad.file for bad in odd}
    some = [file for file in files if file not in names]
    checked = check_files(records, some, DELIVERY_SCHEMA, TIME)
    return replace(checked, left_out=(*checked.left_out, *odd))


def flat_beside_sites(files: Iterable[Path]) -> list[MixedLayout]:
    """The flat ones, if any other is of a site by its path, readable or not."""
    by_name = sorted(files)
    named = next((file for file in by_name if site_of(file) is not None), None)
    if named is None:
        return []
    return [MixedLayout(file, named) for file in by_name if site_of(file) is None]
