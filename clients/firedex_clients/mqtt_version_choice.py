"""Which MQTT to speak with a broker that is not known: 5, or 3.1.1 if that is all it takes. Pure.

A broker that knows no MQTT 5 says so, or closes, or says nothing at all; but one that is away or
slow does that too, and on 3.1.1 every stamp would be lost. So when 5 has gone unanswered and 3.1.1
is taken, 5 is tried once more, now that the broker is known to be there.
"""

from paho.mqtt.enums import MQTTProtocolVersion

__all__ = ["V3", "V5", "VersionChoice"]

V3, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5


class VersionChoice:
    """What to try next, and whether it is known to be right."""

    def __init__(self, known: MQTTProtocolVersion | None = None) -> None:
        self.version = known or V5
        self.sure = known is not None
        self._three_is_taken = False

    def learn(self, version: MQTTProtocolVersion) -> None:
        """This it is."""
        self.version, self.sure = version, True

    def accepted(self) -> bool:
        """The broker has taken the version; whether to stay with it."""
        if self.version == V3 and not self.sure:
            self._three_is_taken, self.version = True, V5
            return False
        self.sure = True
        return True

    def unanswered(self) -> None:
        """The broker has closed, or said nothing."""
        if self.sure:
            return
        if self.version == V5 and self._three_is_taken:
            self.learn(V3)
        else:
            self.version = V3 if self.version == V5 else V5
            self._three_is_taken = False

    def refused(self) -> None:
        """The broker says that it does not know the version."""
        if self.version == V5:
            self.learn(V3)
