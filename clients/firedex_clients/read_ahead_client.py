"""A paho client that reads large blocks from its socket and parses events at QoS 0 itself.

paho calls ``recv`` four times for an event and spends most of its time in the parser of MQTT 5
properties. `ReadAheadClient` reads all that has arrived with one call, splits it into packets, and
parses PUBLISH packets at QoS 0, which need no acknowledgement and change no state of the session.
Every other packet is passed to paho, complete.

For this it overrides ``_sock_recv``, because paho has no public way to pass it received bytes. The
method is private: the version of paho is limited to those that are tested with it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as mqtt

from firedex.transport.mqtt.encoding import MalformedPacket, PacketSplitter, PacketType
from firedex.transport.mqtt.packets import read_publish
from firedex.transport.mqtt.version import MQTT_5

__all__ = ["OnPlainEvent", "ReadAheadClient"]

BLOCK_BYTES = 65_536
TYPE_AND_QOS = 0b1111_0110
PUBLISH_AT_QOS_0 = PacketType.PUBLISH << 4
OnPlainEvent = Callable[[str, bytes, bool, list[tuple[str, str]], tuple[int, ...]], None]
"""Called with topic, payload, whether it is retained, user properties, subscription identifiers."""


class ReadAheadClient(mqtt.Client):
    """Call ``read`` instead of ``loop_read`` when the socket is readable.

    ``on_plain_event`` receives the events at QoS 0, and ``on_message`` those at QoS 1 and 2, all in
    the order of their arrival. Packets that cannot be parsed are also passed to paho.
    """

    on_plain_event: OnPlainEvent | None = None
    level = MQTT_5

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.discard_buffer()

    def discard_buffer(self) -> None:
        """Discard the bytes of an old connection; call it before each ``connect``."""
        self._splitter = PacketSplitter()
        self._complete: Iterator[bytes] | None = None
        """The packets of the last block that have not been processed; None if there are none."""
        self._packet, self._at = b"", 0
        """The packet that is passed to paho, and the number of bytes that paho has read of it."""
        self._ended = False

    def read(self, max_packets: int) -> bool:
        """Process received packets; return whether to call again although the socket is empty."""
        if self._complete is None:
            try:
                block = super()._sock_recv(BLOCK_BYTES)
            except BlockingIOError:
                return False
            except OSError:
                block = b""
            if not block:
                self._end()
                return False
            self._complete = self._splitter.feed(block)
        try:
            for packet in self._complete:
                if not self._take_plain_event(packet):
                    self._packet, self._at = packet, 0
                    if self.loop_read() != mqtt.MQTT_ERR_SUCCESS:
                        return False
                max_packets -= 1
                if max_packets <= 0:
                    return True
        except MalformedPacket:
            self._end()
        self._complete = None
        return False

    def _take_plain_event(self, packet: bytes) -> bool:
        """Pass a PUBLISH packet at QoS 0 to ``on_plain_event``; return False for other packets."""
        on_plain_event = self.on_plain_event
        if packet[0] & TYPE_AND_QOS != PUBLISH_AT_QOS_0 or on_plain_event is None:
            return False
        try:
            event = read_publish(packet, level=self.level)
            topic = event.topic.decode()
            properties = [(key.decode(), value.decode()) for key, value in event.user_properties]
        except (MalformedPacket, UnicodeDecodeError):
            return False
        on_plain_event(topic, event.payload, event.retain, properties, event.subscriptions)
        return True

    def _end(self) -> None:
        """Let paho close the connection, as if it had read the end of the stream."""
        self._ended = True
        self.loop_read()

    def _sock_recv(self, bufsize: int) -> Any:
        at = self._at
        if at >= len(self._packet):
            if self._ended:
                return b""
            raise BlockingIOError
        self._at = at + bufsize
        return self._packet[at : at + bufsize]
