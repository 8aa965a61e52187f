"""A log of announced interest as Parquet files, for the planning of the overlay.

One row is one filter that a site has announced or withdrawn, as this site saw it. Rows are
collected in memory and written to a new file about once a minute; a file appears only when it is
complete. The oldest files are deleted, so the log is bounded. At the start, and then once a day, a
snapshot repeats all filters in force, so that the log can be read without the deleted files.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from firedex.system.files import write_atomically

__all__ = ["AnnouncementLog", "AnnouncementLogError", "AnnouncementRow"]

log = logging.getLogger("firedex.federation")

SNAPSHOT_SECONDS = 24 * 3600.0
MAX_ROWS_IN_MEMORY = 500_000
ROWS_PER_FILE = 100_000
MAX_FILES = 5_000
SMALLEST_STEP_SECONDS = 1e-6
Interest = Iterable[tuple[str, int, int, Mapping[str, int]]]
"""Origin, epoch, version and filters of each site."""


class AnnouncementLogError(Exception):
    """The log cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementRow:
    """One row of the log; the fields are the columns."""

    observed_at_seconds: float
    """Time since 1970. It grows from row to row of an observer, so it is also the order."""
    observer: str
    """Site that has written the row."""
    change: Literal["snapshot", "announced", "withdrawn"]
    """After ``snapshot`` come all filters in force; rows before it are not needed any more."""
    origin: str | None = None
    """Site whose interest has changed; None for a snapshot."""
    epoch: int | None = None
    """Grows with each start of the origin; -1 like ``version``."""
    version: int | None = None
    """Sequence number of the change within the epoch.

    -1 if the filter was restored from the journal and the origin has not announced it since.
    """
    filter: str | None = None
    """Topic filter."""
    qos: int | None = None
    """Highest QoS that the origin wants; None if the filter was withdrawn."""
    neighbour: str | None = None
    """Neighbour through which the observer reaches the origin; None if it does not."""


class AnnouncementLog:
    """Collects rows in the event loop, and writes them to files in a thread."""

    def __init__(
        self,
        folder: Path,
        site: str,
        *,
        seconds_per_file: float,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the folder; raise `AnnouncementLogError` if the log cannot be written."""
        self._parquet, self._schema = _load_pyarrow()
        self._folder, self._site, self._clock = folder, site, clock
        self._seconds_per_file, self._max_bytes = seconds_per_file, max_bytes
        self._rows: list[AnnouncementRow] = []
        self._last_seconds = 0.0
        self._snapshot_at = float("-inf")
        self._written_at = clock()
        self._number = 0
        self._writing: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, "announcement-log")
        self.rows_written = self.rows_lost = 0
        self.failure: str | None = None
        name = re.escape(quote(site, safe=""))
        self._own_file = re.compile(rf"announcements-{name}-\d{{13,}}-\d{{6}}\.parquet")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for file in folder.iterdir():  # what a crash has left
                if self._own_file.match(file.name.removeprefix(".")) and file.name.startswith("."):
                    file.unlink()
        except OSError as error:
            raise AnnouncementLogError(
                f"announcement_log: {folder}: {error.strerror or error}"
            ) from error

    def add(
        self,
        origin: str,
        epoch: int,
        version: int,
        announced: Mapping[str, int],
        withdrawn: Sequence[str],
        neighbour: str | None,
    ) -> None:
        """Add the rows of one change of a site's interest."""
        for name, qos in announced.items():
            self._append(change="announced", origin=origin, epoch=epoch, version=version,
                         filter=name, qos=qos, neighbour=neighbour)  # fmt: skip
        for name in withdrawn:
            self._append(change="withdrawn", origin=origin, epoch=epoch, version=version,
                         filter=name, neighbour=neighbour)  # fmt: skip

    def tick(self, interest: Callable[[], Interest], next_hops: Mapping[str, str]) -> None:
        """Add a snapshot and write a file if it is time to; call this about once a second."""
        now = self._clock()
        if now - self._snapshot_at >= SNAPSHOT_SECONDS:
            self._snapshot_at = now
            self._append(change="snapshot")
            for origin, epoch, version, filters in interest():
                self.add(origin, epoch, version, filters, (), next_hops.get(origin))
        is_due = now - self._written_at >= self._seconds_per_file
        if self._rows and (is_due or len(self._rows) >= ROWS_PER_FILE):
            self._start_writing(now)

    def close(self) -> None:
        """Write the remaining rows, and wait until they are on disk."""
        if self._writing is not None:
            self._writing.result()
        if self._rows:
            self._start_writing(self._clock())
        self._thread.shutdown()

    def status(self) -> dict[str, Any]:
        """Return what was written, and what could not be written."""
        return {
            "rows_written": self.rows_written,
            "rows_waiting": len(self._rows),
            "rows_lost": self.rows_lost,
            "failure": self.failure,
        }

    def _append(self, *, change: Literal["snapshot", "announced", "withdrawn"], **row: Any) -> None:
        if len(self._rows) >= MAX_ROWS_IN_MEMORY:
            self.rows_lost += 1
            return
        self._last_seconds = max(self._clock(), self._last_seconds + SMALLEST_STEP_SECONDS)
        self._rows.append(
            AnnouncementRow(
                observed_at_seconds=self._last_seconds, observer=self._site, change=change, **row
            )
        )

    # -- files ---------------------------------------------------------------------------------

    def _start_writing(self, now: float) -> None:
        if self._writing is not None and not self._writing.done():
            return
        rows, self._rows, self._written_at = self._rows, [], now
        self._number = (self._number + 1) % 1_000_000
        milliseconds = int(rows[0].observed_at_seconds * 1000)
        site = quote(self._site, safe="")
        path = self._folder / f"announcements-{site}-{milliseconds:013}-{self._number:06}.parquet"
        self._writing = self._thread.submit(self._write, path, rows)

    def _write(self, path: Path, rows: list[AnnouncementRow]) -> None:
        try:
            write_atomically(path, self._encode(rows))
            self._delete_oldest()
        except Exception as error:  # a full disk must not stop the federator
            self.rows_lost += len(rows)
            if self.failure is None:
                log.warning("announcement log: %s; %d rows are lost", error, len(rows))
            self.failure = str(error)
        else:
            self.rows_written += len(rows)
            self.failure = None

    def _encode(self, rows: list[AnnouncementRow]) -> bytes:
        import pyarrow as pa

        columns = {name: [getattr(row, name) for row in rows] for name in self._schema.names}
        table = pa.table(columns, schema=self._schema)
        sink = pa.BufferOutputStream()
        self._parquet.write_table(table, sink, compression="zstd")
        return bytes(sink.getvalue())

    def _delete_oldest(self) -> None:
        """Delete the oldest files of this site until the log is within its limits."""
        files = sorted(f for f in self._folder.iterdir() if self._own_file.fullmatch(f.name))
        sizes = [file.stat().st_size for file in files]
        total, count = sum(sizes), len(files)
        for file, size in zip(files[:-1], sizes[:-1], strict=True):
            if total <= self._max_bytes and count <= MAX_FILES:
                return
            file.unlink(missing_ok=True)
            total, count = total - size, count - 1


def _load_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow.parquet and the schema of the rows; the extra of the federator has neither."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise AnnouncementLogError(
            "announcement_log needs pyarrow; install it with:"
            " pip install 'firedex[announcement-log]'"
        ) from error
    types = {"observed_at_seconds": pa.float64(), "epoch": pa.int64(), "version": pa.int64(),
             "qos": pa.int8()}  # fmt: skip
    required = {"observed_at_seconds", "observer", "change"}
    return pq, pa.schema(
        [
            pa.field(name, types.get(name, pa.string()), nullable=name not in required)
            for name in AnnouncementRow.__dataclass_fields__
        ]
    )
