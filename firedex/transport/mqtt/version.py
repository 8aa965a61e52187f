"""The choice of the MQTT version for a broker whose version is not known: 5 if possible, or 3.1.1.

A broker that does not support MQTT 5 rejects CONNECT, closes the connection, or does not respond.
A broker that is slow or restarting behaves in the same way, and with MQTT 3.1.1 the event stamps
would be lost. Therefore, if MQTT 5 got no response and 3.1.1 is accepted, MQTT 5 is tried once
more.
"""

__all__ = ["MQTT_3", "MQTT_5", "LevelChoice"]

MQTT_3, MQTT_5 = 4, 5
"""Protocol levels as in CONNECT: level 4 is MQTT 3.1.1."""


class LevelChoice:
    """The protocol level to try next (``level``), and whether it is confirmed (``sure``)."""

    def __init__(self, known: int | None = None) -> None:
        self.level = known or MQTT_5
        self.sure = known is not None
        self._level_3_accepted = False

    def learn(self, level: int) -> None:
        """Use this level from now on."""
        self.level, self.sure = level, True

    def accepted(self) -> bool:
        """Record that the broker accepted the level; return whether to keep the connection."""
        if self.level == MQTT_3 and not self.sure:
            self._level_3_accepted, self.level = True, MQTT_5
            return False
        self.sure = True
        return True

    def unanswered(self) -> None:
        """Record that the broker closed the connection or did not respond to CONNECT."""
        if self.sure:
            return
        if self.level == MQTT_5 and self._level_3_accepted:
            self.learn(MQTT_3)
        else:
            self.level = MQTT_3 if self.level == MQTT_5 else MQTT_5
            self._level_3_accepted = False

    def refused(self) -> None:
        """Record that the broker rejected the level as unsupported."""
        if self.level == MQTT_5:
            self.learn(MQTT_3)
