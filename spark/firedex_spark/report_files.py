"""What the folders and pages of all jobs have in common."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from firedex_spark.errors import BadFile
from firedex_spark.html_report import Page
from firedex_spark.output_folder import write_whole

__all__ = ["milliseconds", "say_what_was_left_out", "write_json", "write_quarantine"]


def write_json(path: Path, data: object) -> None:
    """Data for machines."""
    write_whole(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def write_quarantine(folder: Path, left_out: Sequence[BadFile]) -> None:
    """``quarantine.json``: every file that was left out, and why."""
    said = [
        {"file": str(bad.file), "error": type(bad).__name__, "reason": bad.reason}
        for bad in left_out
    ]
    write_json(folder / "quarantine.json", said)


def say_what_was_left_out(
    page: Page, left_out: Sequence[BadFile], refused: Mapping[str, int]
) -> None:
    """Files and rows that did not count."""
    page.items([f"left out: {bad}" for bad in left_out])
    page.items([f"{count} rows refused: {reason}" for reason, count in refused.items()])


def milliseconds(seconds: float | None) -> float | None:
    """For tables."""
    return None if seconds is None else seconds * 1e3
