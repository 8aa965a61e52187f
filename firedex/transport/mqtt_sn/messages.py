"""The messages of MQTT-SN 1.2 (§5.4) as values, and their error."""

from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "Advertise",
    "Connack",
    "Connect",
    "Disconnect",
    "GwInfo",
    "MalformedMessage",
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


class MalformedMessage(Exception):
    """The bytes are not a valid MQTT-SN message."""


class TopicKind(IntEnum):
    """The kind of a topic id (§5.3.11)."""

    NORMAL = 0
    PREDEFINED = 1
    SHORT = 2


class ReturnCode(IntEnum):
    """Return codes (§5.3.10)."""

    ACCEPTED = 0
    CONGESTION = 1
    INVALID_TOPIC_ID = 2
    NOT_SUPPORTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertise:
    """ADVERTISE: a gateway announces itself; the next message follows in ``duration_seconds``."""

    gateway_id: int
    duration_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGw:
    """SEARCHGW: a client looks for a gateway."""

    radius: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GwInfo:
    """GWINFO: the response to SEARCHGW."""

    gateway_id: int
    address: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """CONNECT: a client opens a session."""

    client_id: str
    duration_seconds: int
    clean_session: bool = True
    will: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Connack:
    """CONNACK: the response to CONNECT."""

    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WillTopicReq:
    """WILLTOPICREQ: the gateway requests the topic of the will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WillTopic:
    """WILLTOPIC: the topic of the will; an empty topic means no will."""

    topic: str = ""
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WillMsgReq:
    """WILLMSGREQ: the gateway requests the payload of the will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WillMsg:
    """WILLMSG: the payload of the will."""

    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """REGISTER: a client requests a topic id (0), or the gateway announces one."""

    topic_id: int
    message_id: int
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Regack:
    """REGACK: the response to REGISTER."""

    topic_id: int
    message_id: int
    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """PUBLISH: an event; QoS −1 needs no session."""

    topic_id: int
    payload: bytes
    kind: TopicKind = TopicKind.NORMAL
    message_id: int = 0
    qos: int = 0
    retain: bool = False
    dup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Puback:
    """PUBACK: acknowledges a QoS 1 event, or rejects any PUBLISH."""

    topic_id: int
    message_id: int
    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pubrec:
    """PUBREC: the first acknowledgement at QoS 2."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pubrel:
    """PUBREL: the response to PUBREC."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pubcomp:
    """PUBCOMP: the response to PUBREL."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """SUBSCRIBE: to a topic name or filter, or to a pre-defined topic id."""

    message_id: int
    topic: str = ""
    topic_id: int = 0
    kind: TopicKind = TopicKind.NORMAL
    qos: int = 0
    dup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Suback:
    """SUBACK: the granted QoS, and the topic id of the events (0 for a wildcard filter)."""

    topic_id: int
    message_id: int
    return_code: int
    qos: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """UNSUBSCRIBE: from a topic name or filter, or from a pre-defined topic id."""

    message_id: int
    topic: str = ""
    topic_id: int = 0
    kind: TopicKind = TopicKind.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsuback:
    """UNSUBACK: the response to UNSUBSCRIBE."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PingReq:
    """PINGREQ: keep-alive; with a client id, a sleeping client requests its events."""

    client_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingResp:
    """PINGRESP: the response to PINGREQ; for a sleeping client, the end of its events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect:
    """DISCONNECT: the end of a session; with a duration, the client goes to sleep."""

    duration_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WillTopicUpd:
    """WILLTOPICUPD: a new topic of the will."""

    topic: str = ""
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WillTopicResp:
    """WILLTOPICRESP: the response to WILLTOPICUPD."""

    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WillMsgUpd:
    """WILLMSGUPD: a new payload of the will."""

    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WillMsgResp:
    """WILLMSGRESP: the response to WILLMSGUPD."""

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
