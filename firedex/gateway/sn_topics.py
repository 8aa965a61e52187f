"""The topic ids of one MQTT-SN client: registered, pre-defined, short. Pure."""

from collections.abc import Mapping

from firedex.mqtt_sn import TopicKind

__all__ = ["SnTopics", "TopicsExhausted"]

SHORT_BYTES = 2
MOST_TOPICS = 10_000
"""Of one client: ids are 16 bits, and hostile clients have time."""


class TopicsExhausted(Exception):
    """A client has registered too many topics."""


class SnTopics:
    """Names to ids and back."""

    def __init__(self, predefined: Mapping[int, bytes]) -> None:
        self._predefined = predefined
        self._predefined_ids = {name: number for number, name in predefined.items()}
        self._names: dict[int, bytes] = {}
        self._ids: dict[bytes, int] = {}
        self._told: set[int] = set()
        self._unknown_predefined: set[int] = set()
        self._knows_predefined = False

    def register(self, name: bytes) -> int:
        """The id of a name, which the client is about to be told."""
        number = self._ids.get(name)
        if number is None:
            if len(self._ids) >= MOST_TOPICS:
                raise TopicsExhausted(f"more than {MOST_TOPICS} topics")
            number = len(self._ids) + 1
            self._ids[name], self._names[number] = number, name
        return number

    def tell(self, number: int) -> None:
        """The client knows an id now."""
        self._told.add(number)

    def forget(self, number: int) -> None:
        """The client does not know an id after all: it will be told (a pre-defined one, anew)."""
        if number in self._told:
            self._told.discard(number)
        else:
            self._unknown_predefined.add(number)

    def clear(self) -> None:
        """A new session: nothing is known."""
        self._names.clear()
        self._ids.clear()
        self._told.clear()
        self._unknown_predefined.clear()

    def name(self, kind: TopicKind, number: int) -> bytes | None:
        """The topic of an id that the client uses."""
        if kind == TopicKind.PREDEFINED:
            self._knows_predefined = True
            return self._predefined.get(number)
        if kind == TopicKind.SHORT:
            return number.to_bytes(2, "big")
        return self._names.get(number)

    def to_client(self, name: bytes) -> tuple[TopicKind, int, bool]:
        """How an event of a topic is named to the client, and whether it knows that already.

        By a pre-defined id only if the client has used such an id itself.
        """
        number = self._ids.get(name)
        if number is not None and number in self._told:
            return TopicKind.NORMAL, number, True
        number = self._predefined_ids.get(name)
        if number is not None and self._knows_predefined and number not in self._unknown_predefined:
            return TopicKind.PREDEFINED, number, True
        if len(name) == SHORT_BYTES:
            return TopicKind.SHORT, int.from_bytes(name, "big"), True
        return TopicKind.NORMAL, self.register(name), False
