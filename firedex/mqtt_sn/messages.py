"""The messages of MQTT-SN 1.2 (§5.4) as values."""

from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "Advertise",
    "Connack",
    "Connect",
    "Disconnect",
    "GwInfo",
    "Message",
    "PingReq",
    "PingResp",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Regack",
    "Register",
    "ReturnCode",
    "SearchGw",
    "Suback",
    "Subscribe",
    "TopicKind",
    "Unsuback",
    "Unsubscribe",
    "WillMsg",
    "WillMsgReq",
    "WillMsgResp",
    "WillMsgUpd",
    "WillTopic",
    "WillTopicReq",
    "WillTopicResp",
    "WillTopicUpd",
]


class TopicKind(IntEnum):
    """How a topic id is meant (§5.3.11)."""

    NORMAL = 0
    PREDEFINED = 1
    SHORT = 2


class ReturnCode(IntEnum):
    """§5.3.10."""

    ACCEPTED = 0
    CONGESTION = 1
    INVALID_TOPIC_ID = 2
    NOT_SUPPORTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertise:
    """A gateway is here, and will say so again in ``duration_seconds``."""

    gateway_id: int
    duration_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGw:
    """Is a gateway here?"""

    radius: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GwInfo:
    """It is."""

    gateway_id: int
    address: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """A client connects."""

    client_id: str
    duration_seconds: int
    clean_session: bool = True
    will: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Connack:
    """Whether it may."""

    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WillTopicReq:
    """Where should the will go?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WillTopic:
    """There; an empty topic means no will."""

    topic: str = ""
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WillMsgReq:
    """What should the will say?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WillMsg:
    """This."""

    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """A topic's id, asked for by a client (0) or told by a gateway."""

    topic_id: int
    message_id: int
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Regack:
    """The id, or that it is understood."""

    topic_id: int
    message_id: int
    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """An event; QoS −1 needs no connection."""

    topic_id: int
    payload: bytes
    kind: TopicKind = TopicKind.NORMAL
    message_id: int = 0
    qos: int = 0
    retain: bool = False
    dup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Puback:
    """QoS 1 is done, or a PUBLISH was refused."""

    topic_id: int
    message_id: int
    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pubrec:
    """QoS 2, first answer."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pubrel:
    """QoS 2, second question."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pubcomp:
    """QoS 2, second answer."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """To a name or filter, or (predefined) to an id."""

    message_id: int
    topic: str = ""
    topic_id: int = 0
    kind: TopicKind = TopicKind.NORMAL
    qos: int = 0
    dup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Suback:
    """Granted, and the id that its events will have (0 for a filter)."""

    topic_id: int
    message_id: int
    return_code: int
    qos: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """Enough of a name, filter or id."""

    message_id: int
    topic: str = ""
    topic_id: int = 0
    kind: TopicKind = TopicKind.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsuback:
    """So be it."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PingReq:
    """Still there? With a client id: awake, send what you have."""

    client_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingResp:
    """Still here; nothing more to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect:
    """Goodbye; with a duration: good night."""

    duration_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WillTopicUpd:
    """The will goes elsewhere."""

    topic: str = ""
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WillTopicResp:
    """Whether it does."""

    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WillMsgUpd:
    """The will says something else."""

    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WillMsgResp:
    """Whether it does."""

    return_code: int


Message = (
    Advertise
    | SearchGw
    | GwInfo
    | Connect
    | Connack
    | WillTopicReq
    | WillTopic
    | WillMsgReq
    | WillMsg
    | Register
    | Regack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | PingReq
    | PingResp
    | Disconnect
    | WillTopicUpd
    | WillTopicResp
    | WillMsgUpd
    | WillMsgResp
)
