"""Free ports for tests, which no other process takes before the test listens on them.

The kernel assigns ports from 32768 on to outgoing connections, so a port from that range may be
taken between the check and the bind; a client may even connect to itself. The ports here are lower,
also lower than those of flows (from 20000 on), and each pytest worker has its own range.
"""

import os
import socket
import time

__all__ = ["free_port"]

_FIRST, _EACH, _SHARES = 10_000, 1_000, 10
_share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
_next = time.time_ns() % _EACH


def free_port() -> int:
    """Return a port that is free for TCP and UDP; ports are reused as late as possible."""
    global _next  # the last port of this process
    for _ in range(_EACH):
        _next = (_next + 1) % _EACH
        port = _FIRST + _share * _EACH + _next
        if _is_free(port):
            return port
    raise AssertionError(f"none of the {_EACH} ports of worker {_share} is free")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
