"""paho's client, reading ahead.

paho asks the kernel for an event's first byte, each byte of its length, and then the rest: four
system calls. Here one takes all there is. The method that is overridden is paho's own affair;
should a later version do without it, this does nothing, and nothing breaks.
"""

from typing import Any

import paho.mqtt.client as mqtt

__all__ = ["ReadAheadClient"]

AT_ONCE_BYTES = 65_536


class ReadAheadClient(mqtt.Client):
    """Driven from outside: as long as ``has_more``, read again before waiting for the socket."""

    _ahead = b""
    _at = 0

    @property
    def has_more(self) -> bool:
        """Whether something was read ahead that paho has not taken."""
        return self._at < len(self._ahead)

    def forget(self) -> None:
        """A new connection: nothing of the old one counts."""
        self._ahead, self._at = b"", 0

    def _sock_recv(self, bufsize: int) -> Any:
        at = self._at
        if at >= len(self._ahead):
            self._ahead, self._at, at = super()._sock_recv(AT_ONCE_BYTES), 0, 0
        self._at = at + bufsize
        return self._ahead[at : at + bufsize]
