"""Numbered UDP streams: a sender with a timetable, and a receiver that records every packet.

Both run as programs on hosts and write NumPy files.
"""

import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HEADER = struct.Struct("!IIq")
MAX_BURST = 64


def send(timetable: str, source: str, target: str, log: str) -> None:
    """Send each packet of the timetable (seconds, stream, payload bytes, port) when it is due."""
    table = np.load(timetable)
    address, port = source.split(":")
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    out.bind((address, int(port)))
    numbers = np.zeros(int(table["stream"].max()) + 1, dtype=int)
    seconds, streams = table["seconds"].tolist(), table["stream"].tolist()
    sizes, ports = table["bytes"].tolist(), table["port"].tolist()
    padding = bytes(2000)
    start = time.monotonic() + 0.1
    for due, stream, size, to in zip(seconds, streams, sizes, ports, strict=True):
        while (wait := start + due - time.monotonic()) > 0:
            time.sleep(min(wait, 0.05) if wait > 0.001 else 0)
        number = int(numbers[stream])
        numbers[stream] += 1
        head = HEADER.pack(stream, number, time.monotonic_ns())
        out.sendto(head + padding[: max(size - HEADER.size, 0)], (target, to))
    np.save(log, numbers)


def receive(address: str, first: str, last: str, stop: str, log: str) -> None:
    """Record stream, number, delay and time of every packet, until the file ``stop`` exists."""
    selector = selectors.EpollSelector()
    for port in range(int(first), int(last) + 1):
        each = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        each.bind((address, port))
        each.setblocking(False)
        selector.register(each, selectors.EVENT_READ)
    packets: list[tuple[int, int, int, int]] = []
    Path(f"{log}.ready").touch()
    while not Path(stop).exists():
        for key, _ in selector.select(timeout=0.2):
            for _ in range(MAX_BURST):
                try:
                    data = key.fileobj.recv(4096)  # type: ignore[union-attr]
                except BlockingIOError:
                    break
                now = time.monotonic_ns()
                stream, number, sent = HEADER.unpack_from(data)
                packets.append((stream, number, now - sent, now))
    np.save(log, np.array(packets, dtype=np.int64).reshape(-1, 4))


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"send": send, "receive": receive}
    programs[sys.argv[1]](*sys.argv[2:])
