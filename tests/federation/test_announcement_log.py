"""The log of announced interest: what its files contain, its limits, and what a crash leaves."""

import random
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex.federation import announcement_log
from firedex.federation.announcement_log import AnnouncementLog, AnnouncementLogError
from tests.support.memory_federation import MemoryFederation, ring
from tests.support.waiting import wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(folder: Path, clock: Clock, site: str = "port", **limits: Any) -> AnnouncementLog:
    settings = {"seconds_per_file": 60.0, "max_bytes": 1_000_000, **limits}
    return AnnouncementLog(folder, site, clock=clock, **settings)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = [
        row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]
    return sorted(rows, key=lambda row: row["observed_at_seconds"])


def interest_from(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the interest of each site that the rows of one observer describe."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["change"] == "snapshot":
            found.clear()
        elif row["change"] == "announced":
            found.setdefault(row["origin"], {})[row["filter"]] = row["qos"]
        else:
            found[row["origin"]].pop(row["filter"])
    return {site: filters for site, filters in found.items() if filters}


def test_each_change_is_a_row(tmp_path: Path) -> None:
    clock = Clock()
    log = opened(tmp_path, clock)
    log.tick(lambda: [("port", 5, 1, {"alarm/#": 2})], {})
    log.add("fire", 7, 3, {"smoke/#": 1}, ["smoke/1"], "bus")
    log.close()
    start = clock.now
    rows = rows_of(tmp_path)
    assert [row["observed_at_seconds"] - start for row in rows] == sorted(
        row["observed_at_seconds"] - start for row in rows
    )
    for row in rows:
        assert row.pop("observed_at_seconds") - start < 1
        assert row.pop("observer") == "port"
    nothing = dict.fromkeys(("origin", "epoch", "version", "filter", "qos", "neighbour"))
    fire = {"origin": "fire", "epoch": 7, "version": 3, "neighbour": "bus"}
    assert rows == [
        {"change": "snapshot", **nothing},
        {"change": "announced", "origin": "port", "epoch": 5, "version": 1, "filter": "alarm/#",
         "qos": 2, "neighbour": None},
        {"change": "announced", "filter": "smoke/#", "qos": 1, **fire},
        {"change": "withdrawn", "filter": "smoke/1", "qos": None, **fire},
    ]  # fmt: skip
    assert log.status() == {"rows_written": 4, "rows_waiting": 0, "rows_lost": 0, "failure": None}
    (file,) = tmp_path.iterdir()
    assert pq.read_schema(file).field("qos").type == pa.int8()


def test_file_is_written_after_its_time_and_not_before(tmp_path: Path) -> None:
    clock = Clock()
    log = opened(tmp_path, clock)
    log.tick(list, {})
    assert not list(tmp_path.iterdir())
    clock.now += 61.0
    log.tick(list, {})
    wait_until(lambda: list(tmp_path.glob("*.parquet")), "the file is written")
    clock.now += 61.0
    log.tick(list, {})
    log.close()
    assert len(list(tmp_path.iterdir())) == 1, "there is no file without a change"


def test_oldest_files_of_the_own_site_are_deleted(tmp_path: Path) -> None:
    clock = Clock()
    other = opened(tmp_path, clock, site="port-2")
    other.add("fire", 1, 1, {"smoke/#": 1}, (), None)
    other.close()
    (untouched,) = tmp_path.iterdir()
    for number in range(6):
        clock.now += 100.0
        log = opened(tmp_path, clock, max_bytes=3 * untouched.stat().st_size + 1000)
        log.add("fire", 1, number, {f"smoke/{number}": 1}, (), None)
        log.close()
    numbers = [row["version"] for row in rows_of(tmp_path) if row["observer"] == "port"]
    assert numbers == [3, 4, 5]
    assert untouched.exists()


def test_rows_over_the_limit_of_the_memory_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcement_log, "MAX_ROWS_IN_MEMORY", 10)
    log = opened(tmp_path, Clock())
    log.add("fire", 1, 1, {f"smoke/{number}": 1 for number in range(12)}, (), None)
    log.close()
    assert (log.rows_written, log.rows_lost) == (10, 2)


def test_unwritable_folder_loses_rows_and_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = opened(folder, Clock())
    folder.rmdir()
    log.add("fire", 1, 1, {"smoke/#": 1}, (), None)
    log.close()
    assert log.status()["rows_lost"] == 1
    assert "No such file" in str(log.status()["failure"])
    (tmp_path / "file").touch()
    with pytest.raises(AnnouncementLogError, match=r"announcement_log: .*file: File exists"):
        opened(tmp_path / "file", Clock())


def test_unfinished_file_of_a_crash_is_removed(tmp_path: Path) -> None:
    unfinished = tmp_path / ".announcements-port-1800000000000-000001.parquet.x1y2"
    unfinished.write_bytes(b"half")
    of_another = tmp_path / ".announcements-fire-1800000000000-000001.parquet.x1y2"
    of_another.write_bytes(b"half")
    opened(tmp_path, Clock()).close()
    assert list(tmp_path.iterdir()) == [of_another]


def test_missing_pyarrow_is_reported_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(AnnouncementLogError, match=r"pip install 'firedex\[announcement-log\]'"):
        opened(tmp_path, Clock())


def test_log_describes_the_interest_of_all_sites(tmp_path: Path) -> None:
    """Random changes, a lost link and a snapshot: the rows lead to the tables of the observer."""
    network, clock = MemoryFederation(ring(4)), Clock()
    log = opened(tmp_path, clock, site="s0")
    exchange = network.node("s0").interest
    exchange.on_announcement = partial(log.add, neighbour=None)
    generator = random.Random(5)  # noqa: S311
    for step in range(200):
        site = generator.choice(list(network.sites))
        names = generator.sample(["a/b", "a/#", "+/b", "b", "c/d", "c/+"], generator.randint(0, 4))
        network.want(site, *names, qos=generator.randint(0, 2))
        if step == 50:
            network.cut("s0", "s1")
        if step == 100:
            clock.now += 100_000.0
            network.connect("s0", "s1")
            log.tick(exchange.announced, {})
        network.deliver_some(generator.randint(0, 20))
    network.pass_time(3)
    log.close()
    expected: dict[str, Mapping[str, int]] = {"s0": exchange.local.announced}
    expected |= exchange.remote.filters
    assert interest_from(rows_of(tmp_path)) == {s: dict(f) for s, f in expected.items() if f}
