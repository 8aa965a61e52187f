"""A subscriber's last plan on disk, for a start without the service."""

import logging
from pathlib import Path

from firedex.wire import Configuration, WireError, from_json, to_json

__all__ = ["read_plan", "write_plan"]

log = logging.getLogger("firedex.clients")


def read_plan(path: Path | None) -> Configuration | None:
    """The plan that was kept, if there is one that can be read."""
    if path is None or not path.exists():
        return None
    try:
        return from_json(Configuration, path.read_text("utf-8"), tolerant=True)
    except (OSError, ValueError, WireError) as error:
        log.warning("%s: no plan can be read there: %s", path, error)
        return None


def write_plan(path: Path | None, configuration: Configuration | None) -> None:
    """Keep it: whole, or the one before stays."""
    if path is None or configuration is None:
        return
    try:
        unfinished = path.with_suffix(path.suffix + ".unfinished")
        unfinished.write_text(to_json(configuration), "utf-8")
        unfinished.rename(path)
    except OSError as error:
        log.warning("%s: the plan cannot be kept there: %s", path, error)
