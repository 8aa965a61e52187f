"""Ports to listen on that nobody takes between the choice and the listening.

The kernel hands ports from 32768 on to whoever dials, so one that was free a moment ago may be
somebody's by the time it is bound; a part that dials an absent one may even reach itself. These lie
below, below the flows' own (20000 on) too, and each worker of a run has a tenth of its own.
"""

import os
import socket
import time

__all__ = ["free_port"]

_FIRST, _EACH, _SHARES = 10_000, 1_000, 10
_share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
_next = time.time_ns() % _EACH


def free_port() -> int:
    """One that is free for TCP and for UDP, and was not given out before it had to be."""
    global _next  # where this process has got to
    for _ in range(_EACH):
        _next = (_next + 1) % _EACH
        port = _FIRST + _share * _EACH + _next
        if _is_free(port):
            return port
    raise AssertionError(f"none of {_EACH} ports of worker {_share} is free")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
