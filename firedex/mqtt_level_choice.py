"""Which MQTT to speak with a broker that is not known: 5, or 3.1.1 if that is all it takes. Pure.

A broker that knows no MQTT 5 says so, or closes, or says nothing at all; but one that is away or
slow does that too, and on 3.1.1 every stamp would be lost. So when 5 has gone unanswered and 3.1.1
is taken, 5 is tried once more, now that the broker is known to be there.
"""

__all__ = ["MQTT_3", "MQTT_5", "LevelChoice"]

MQTT_3, MQTT_5 = 4, 5
"""The protocol's level, as CONNECT has it: 4 is MQTT 3.1.1."""


class LevelChoice:
    """What to try next, and whether it is known to be right."""

    def __init__(self, known: int | None = None) -> None:
        self.level = known or MQTT_5
        self.sure = known is not None
        self._three_is_taken = False

    def learn(self, level: int) -> None:
        """This it is."""
        self.level, self.sure = level, True

    def accepted(self) -> bool:
        """The broker has taken the level; whether to stay with it."""
        if self.level == MQTT_3 and not self.sure:
            self._three_is_taken, self.level = True, MQTT_5
            return False
        self.sure = True
        return True

    def unanswered(self) -> None:
        """The broker has closed, or said nothing."""
        if self.sure:
            return
        if self.level == MQTT_5 and self._three_is_taken:
            self.learn(MQTT_3)
        else:
            self.level = MQTT_3 if self.level == MQTT_5 else MQTT_5
            self._three_is_taken = False

    def refused(self) -> None:
        """The broker says that it does not know the level."""
        if self.level == MQTT_5:
            self.learn(MQTT_3)
