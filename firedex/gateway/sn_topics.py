"""The topic ids of one MQTT-SN client: registered, pre-defined and short."""

from collections.abc import Mapping

from firedex.transport.mqtt_sn.messages import Subscribe, TopicKind, Unsubscribe
from firedex.wire.mqtt_names import check_filter, check_topic, has_wildcard

__all__ = ["TooManyTopics", "TopicIds", "is_publishable"]

SHORT_NAME_BYTES = 2
MAX_TOPICS = 10_000
"""Maximum number of registered topics of one client, to limit memory use."""


class TooManyTopics(Exception):
    """A client has registered too many topics."""


def is_publishable(topic: bytes) -> bool:
    """Return whether events can be published to a topic."""
    try:
        check_topic(topic.decode())
    except ValueError:
        return False
    return True


class TopicIds:
    """Map topic names to ids and back, and record which ids the client knows."""

    def __init__(self, predefined: Mapping[int, bytes]) -> None:
        self._predefined = predefined
        self._predefined_ids = {name: topic_id for topic_id, name in predefined.items()}
        self._names: dict[int, bytes] = {}
        self._ids: dict[bytes, int] = {}
        self._known: set[int] = set()
        self._unknown_predefined: set[int] = set()
        self._uses_predefined = False

    def register(self, name: bytes) -> int:
        """Return the id of a topic, assigning one if necessary."""
        topic_id = self._ids.get(name)
        if topic_id is None:
            if len(self._ids) >= MAX_TOPICS:
                raise TooManyTopics(f"the client uses more than {MAX_TOPICS} topics")
            topic_id = len(self._ids) + 1
            self._ids[name], self._names[topic_id] = topic_id, name
        return topic_id

    def mark_known(self, topic_id: int) -> None:
        """Record that the client knows an id."""
        self._known.add(topic_id)

    def mark_unknown(self, topic_id: int) -> None:
        """Record that the client does not know an id, so that its topic is registered again."""
        if topic_id in self._known:
            self._known.discard(topic_id)
        else:
            self._unknown_predefined.add(topic_id)

    def clear(self) -> None:
        """Forget all registered topics, for a new session."""
        self._names.clear()
        self._ids.clear()
        self._known.clear()
        self._unknown_predefined.clear()

    def name(self, kind: TopicKind, topic_id: int) -> bytes | None:
        """Return the topic name of an id that the client uses, or None if it has none."""
        if kind == TopicKind.PREDEFINED:
            self._uses_predefined = True
            return self._predefined.get(topic_id)
        if kind == TopicKind.SHORT:
            return topic_id.to_bytes(2, "big")
        return self._names.get(topic_id)

    def filter_of(self, message: Subscribe | Unsubscribe) -> tuple[bytes | None, int]:
        """Return the filter in a message, and the topic id of its events if there is one."""
        if message.kind == TopicKind.PREDEFINED:
            return self.name(message.kind, message.topic_id), message.topic_id
        try:
            check_filter(message.topic)
        except ValueError:
            return None, 0
        name = message.topic.encode()
        if has_wildcard(message.topic) or message.kind == TopicKind.SHORT:
            return name, 0
        try:
            return name, self.register(name)
        except TooManyTopics:
            return None, 0

    def to_client(self, name: bytes) -> tuple[TopicKind, int, bool]:
        """Return the kind and id to use for events of a topic, and whether the client knows it.

        A pre-defined id is used only if the client has used one itself.
        """
        topic_id = self._ids.get(name)
        if topic_id is not None and topic_id in self._known:
            return TopicKind.NORMAL, topic_id, True
        topic_id = self._predefined_ids.get(name)
        if (
            topic_id is not None
            and self._uses_predefined
            and topic_id not in self._unknown_predefined
        ):
            return TopicKind.PREDEFINED, topic_id, True
        if len(name) == SHORT_NAME_BYTES:
            return TopicKind.SHORT, int.from_bytes(name, "big"), True
        return TopicKind.NORMAL, self.register(name), False
