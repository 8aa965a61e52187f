"""Sockets in the network namespace of another process."""

import ctypes
import os
import socket
import threading

__all__ = ["socket_in_namespace_of"]

CLONE_NEWNET = 0x40000000


def socket_in_namespace_of(pid: int, family: int, kind: int, protocol: int) -> socket.socket:
    """A socket of the namespace that ``pid`` is in. Only a thread enters it, and ends there."""
    made: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    made.append(OSError(number, os.strerror(number)))
                    return
                made.append(socket.socket(family, kind, protocol))
            finally:
                os.close(namespace)
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
