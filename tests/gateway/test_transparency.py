"""The gateway is transparent: clients observe the same with and without it.

Each script runs twice, directly at a broker and through the gateway. Each run has a new broker, so
that one run cannot affect the other. A script returns everything that its clients observed.
"""

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from tests.support.loopback_parts import TIMEOUT_SECONDS, mosquitto, running_relay, seeded_random
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

V3, V5 = mqtt.MQTTv311, mqtt.MQTTv5


class Client:
    """A paho client that records its messages and its changes of connection."""

    def __init__(self, port: int, version: Any, name: str, **options: Any) -> None:
        self.observed: list[Any] = []
        self.version, self._port, self._options = version, port, options
        arguments = {} if version == V5 else {"clean_session": options.pop("clean", True)}
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=version, **arguments
        )
        self._connected = threading.Event()
        self._suback: dict[int, list[int]] = {}
        self.paho.on_connect = self._on_connect
        self.paho.on_message = self._on_message
        self.paho.on_disconnect = lambda _c, _d, _f, reason, _p: self.observed.append(
            ("disconnected", reason.value)
        )
        self.paho.on_subscribe = lambda _c, _d, mid, reasons, _p: self._suback.update(
            {mid: [reason.value for reason in reasons]}
        )
        self.paho.on_unsubscribe = lambda _c, _d, mid, _r, _p: self._suback.update({mid: []})

    def _on_connect(self, _c: Any, _d: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.observed.append(
            ("connected", flags.session_present, reason.value, properties_as_dict(properties))
        )
        self._connected.set()

    def _on_message(self, _c: Any, _d: Any, message: mqtt.MQTTMessage) -> None:
        self.observed.append(
            (
                message.topic,
                message.payload,
                message.qos,
                message.retain,
                properties_as_dict(message.properties),
            )
        )

    def __enter__(self) -> "Client":
        options = dict(self._options)
        if self.version == V5:
            properties = Properties(PacketTypes.CONNECT)
            for key, value in options.pop("properties", {}).items():
                setattr(properties, key, value)
            options.setdefault("clean_start", options.pop("clean", True))
            options["properties"] = properties
        self.paho.connect("127.0.0.1", self._port, **options)
        self.paho.loop_start()
        assert self._connected.wait(TIMEOUT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def subscribe(self, *names: str, qos: int = 2, number: int | None = None) -> list[int]:
        if self.version == V5:
            properties = Properties(PacketTypes.SUBSCRIBE)
            if number is not None:
                properties.SubscriptionIdentifier = number
            _, mid = self.paho.subscribe(
                [(name, SubscribeOptions(qos=qos)) for name in names], properties=properties
            )
        else:
            _, mid = self.paho.subscribe([(name, qos) for name in names])
        wait_until(lambda: mid in self._suback, "SUBACK")
        assert mid is not None
        return self._suback[mid]

    def unsubscribe(self, name: str) -> None:
        _, mid = self.paho.unsubscribe(name)
        wait_until(lambda: mid in self._suback, "UNSUBACK")

    def publish(self, topic: str, payload: bytes, qos: int = 0, **more: Any) -> None:
        info = self.paho.publish(topic, payload, qos, **more)
        info.wait_for_publish(TIMEOUT_SECONDS)
        assert info.is_published()

    def wait_for(self, count: int) -> list[Any]:
        """Wait until ``count`` messages have been received, and return them."""
        wait_until(lambda: len(self.messages()) >= count, f"{count} messages, not {self.observed}")
        return self.messages()

    def messages(self) -> list[Any]:
        return [each for each in list(self.observed) if isinstance(each[1], bytes)]


def properties_as_dict(properties: Any) -> Any:
    values = properties.json() if properties is not None else {}
    return {key: values[key] for key in sorted(values)}


# -- scripts: each gets a port and an MQTT version, and returns what its clients observed ----------

Script = Callable[[int, Any], Any]


def payloads_of_every_size(port: int, version: Any) -> Any:
    sizes = [0, 1, 127, 128, 16_383, 16_384, 1_000_001]
    with Client(port, version, "in") as receiver, Client(port, version, "out") as sender:
        granted = receiver.subscribe("size/#")
        for qos in (0, 1, 2):
            for size in sizes:
                sender.publish(f"size/{qos}", seeded_random(size).randbytes(size), qos)
        return granted, sorted(receiver.wait_for(3 * len(sizes)), key=str)


def retained_events(port: int, version: Any) -> Any:
    with Client(port, version, "out") as sender, Client(port, version, "in") as receiver:
        for n in range(3):
            sender.publish(f"kept/{n}", b"value %d" % n, 1, retain=True)
        sender.publish("kept/1", b"", 1, retain=True)
        receiver.subscribe("kept/#")
        receiver.wait_for(2)
        sender.publish("kept/2", b"live", 1, retain=True)
        receiver.wait_for(3)
        receiver.unsubscribe("kept/#")
        receiver.subscribe("kept/2", qos=0)
        return receiver.wait_for(4)


def will_messages(port: int, version: Any) -> Any:
    with Client(port, version, "observer") as observer:
        observer.subscribe("will/#")
        for name, sends_disconnect in (("lost", False), ("left", True)):
            client = Client(port, version, name)
            client.paho.will_set(f"will/{name}", b"gone", 1, retain=True)
            with client:
                if not sends_disconnect:
                    client.paho.loop_stop()
                    connection = client.paho.socket()
                    assert isinstance(connection, socket.socket)
                    connection.shutdown(socket.SHUT_RDWR)
        with Client(port, version, "end") as publisher:
            publisher.publish("will/end", b"", 1)
        return observer.wait_for(2)


def wildcards_and_overlaps(port: int, version: Any) -> Any:
    with Client(port, version, "in") as receiver, Client(port, version, "out") as sender:
        granted = [
            receiver.subscribe("a/+/c", "a/#", qos=1, number=7 if version == V5 else None),
            receiver.subscribe("+/b/c", qos=0, number=9 if version == V5 else None),
            receiver.subscribe("$SYS/never/#"),
        ]
        for topic in ("a/b/c", "a", "a/x", "x/b/c", "a//c", "b/a", "/a", "a/ü/c"):
            sender.publish(topic, topic.encode(), 2)
        receiver.subscribe("end")
        sender.publish("end", b"end", 1)
        wait_until(lambda: any(m[0] == "end" for m in receiver.messages()), "the end")
        return granted, sorted(receiver.messages(), key=str)


def persistent_sessions(port: int, version: Any) -> Any:
    session_options: dict[str, Any] = {"clean": False}
    if version == V5:
        session_options["properties"] = {"SessionExpiryInterval": 60}
    with Client(port, version, "persistent", **session_options) as first:
        first.subscribe("kept/while/away", qos=2)
    with Client(port, version, "out") as sender:
        for n in range(30):
            sender.publish("kept/while/away", b"%d" % n, n % 3)
    with Client(port, version, "persistent", **session_options) as again:
        observed = again.wait_for(20)
        again.unsubscribe("kept/while/away")
        return first.observed, again.observed[0], observed


def same_client_id_twice(port: int, version: Any) -> Any:
    first = Client(port, version, "same")
    first.paho.reconnect_delay_set(60, 60)
    with first, Client(port, version, "same") as second:
        wait_until(
            lambda: any(s[0] == "disconnected" for s in first.observed),
            "the first client to be disconnected",
        )
        second.subscribe("x")
        second.publish("x", b"mine", 1)
        return first.observed[:2], second.wait_for(1)


def topic_aliases(port: int, version: Any) -> Any:
    with Client(port, version, "in") as receiver, Client(port, version, "out") as sender:
        receiver.subscribe("alias/#")
        for n in range(6):
            properties = Properties(PacketTypes.PUBLISH)
            properties.TopicAlias = n % 2 + 1
            topic = f"alias/{n % 2}" if n < 2 else ""
            sender.publish(topic, b"%d" % n, 1, properties=properties)
        return receiver.wait_for(6)


def publish_properties(port: int, version: Any) -> Any:
    with Client(port, version, "in") as receiver, Client(port, version, "out") as sender:
        receiver.subscribe("with/properties", number=268_435_455)
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [("a", "b"), ("a", "c" * 3000), ("ü", "")]
        properties.ContentType = "text/plain"
        properties.ResponseTopic = "answer/here"
        properties.CorrelationData = b"\x00\xff"
        properties.PayloadFormatIndicator = 1
        sender.publish("with/properties", b"text", 2, properties=properties)
        return receiver.wait_for(1)


def many_events(port: int, version: Any) -> Any:
    with Client(port, version, "in") as receiver, Client(port, version, "out") as sender:
        receiver.subscribe("quick")
        for n in range(2000):
            sender.paho.publish("quick", b"%d" % n, n % 3)
        sender.publish("quick", b"end", 2)
        return sorted(receiver.wait_for(2001), key=str)


def raw_conversation(*pieces: bytes) -> Script:
    """Return a script that sends each piece of bytes and returns the response to each."""

    def script(port: int, _version: Any) -> Any:
        responses = []
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as raw:
            for piece in pieces:
                raw.sendall(piece)
                responses.append(_read_until_pingresp(raw))
        return responses

    return script


def _read_until_pingresp(raw: socket.socket) -> bytes:
    """Send PINGREQ, and return all bytes up to PINGRESP or to the end of the connection."""
    received = b""
    try:
        raw.sendall(b"\xc0\x00")
        while not received.endswith(b"\xd0\x00"):
            piece = raw.recv(65_536)
            if not piece:
                return received + b"|closed"
            received += piece
    except ConnectionError:
        return received + b"|closed"
    return received


CONNECT_3 = bytes.fromhex("100f00044d5154540402000a0003726177")
CONNECT_5 = bytes.fromhex("101000044d5154540502000a000003726177")
RAW_SCRIPTS: dict[str, Script] = {
    "pings": raw_conversation(CONNECT_5, b"", b""),
    "connect split": raw_conversation(CONNECT_3),
    "level 9": raw_conversation(bytes.fromhex("100f00044d5154540902000a0003726177")),
    "second connect": raw_conversation(CONNECT_5, CONNECT_5),
    "bad filter": raw_conversation(CONNECT_5, b"\x82\x09\x00\x01\x00\x00\x03a#b\x00"),
    "publish to a wildcard": raw_conversation(CONNECT_3, b"\x30\x05\x00\x03a/#"),
    "qos 3": raw_conversation(CONNECT_3, b"\x36\x05\x00\x01a\x00\x01"),
    "empty subscribe": raw_conversation(CONNECT_5, b"\x82\x03\x00\x01\x00"),
    "unknown alias": raw_conversation(CONNECT_5, b"\x30\x06\x00\x00\x03\x23\x00\x05"),
    "auth": raw_conversation(CONNECT_5, b"\xf0\x00"),
}
SCRIPTS_FOR_BOTH_VERSIONS: list[Script] = [
    payloads_of_every_size,
    retained_events,
    will_messages,
    wildcards_and_overlaps,
    persistent_sessions,
    same_client_id_twice,
    many_events,
]
SCRIPTS = [(script, version) for script in SCRIPTS_FOR_BOTH_VERSIONS for version in (V3, V5)]
SCRIPTS += [(topic_aliases, V5), (publish_properties, V5)]


def run_directly_and_through_gateway(
    folder: Path, script: Script, version: Any = V5
) -> tuple[Any, Any]:
    """Return the result of a script directly at a broker, and through a gateway."""
    with mosquitto(folder) as port:
        directly = script(port, version)
    with mosquitto(folder) as port:
        relay = Relay(("127.0.0.1", port), FlowTable(), seeded_random())
        with running_relay(relay) as through_gateway:
            return directly, script(through_gateway, version)


@pytest.mark.parametrize(
    ("script", "version"), SCRIPTS, ids=lambda each: getattr(each, "__name__", f"version {each}")
)
def test_clients_observe_the_same_with_and_without_gateway(
    script: Script, version: Any, tmp_path: Path
) -> None:
    directly, through_gateway = run_directly_and_through_gateway(tmp_path, script, version)
    assert through_gateway == directly


@pytest.mark.parametrize("name", RAW_SCRIPTS)
def test_received_bytes_are_the_same_with_and_without_gateway(name: str, tmp_path: Path) -> None:
    directly, through_gateway = run_directly_and_through_gateway(tmp_path, RAW_SCRIPTS[name])
    assert through_gateway == directly


def test_connect_packet_may_arrive_byte_by_byte(tmp_path: Path) -> None:
    def send_byte_by_byte(port: int, _version: Any) -> Any:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as raw:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in CONNECT_5:
                raw.sendall(bytes([byte]))
            return _read_until_pingresp(raw)

    directly, through_gateway = run_directly_and_through_gateway(tmp_path, send_byte_by_byte)
    assert through_gateway == directly
    assert directly.startswith(b"\x20")


def mosquitto_programs(port: int, _version: Any) -> Any:
    """Return the output of mosquitto_sub for events that mosquitto_pub sends."""
    printed = []
    for version in ("mqttv311", "mqttv5"):
        common = ["-h", "127.0.0.1", "-p", str(port), "-V", version]
        for line in (b"one line", b"x" * 100_000):
            topic = f"programs/{len(line)}"
            subprocess.run(
                ["mosquitto_pub", *common, "-t", topic, "-q", "1", "-r", "-s"],
                input=line,
                check=True,
                timeout=TIMEOUT_SECONDS,
            )
            options = ["-t", topic, "-C", "1", "-q", "2", "-F", "%t %q %r %l %p", "-W", "10"]
            done = subprocess.run(
                ["mosquitto_sub", *common, *options],
                capture_output=True,
                check=True,
                timeout=TIMEOUT_SECONDS,
            )
            printed.append(done.stdout)
    return printed


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto-clients not installed")
def test_mosquitto_programs_print_the_same_with_and_without_gateway(tmp_path: Path) -> None:
    directly, through_gateway = run_directly_and_through_gateway(tmp_path, mosquitto_programs)
    assert through_gateway == directly
    assert len(directly) == 4
    assert b"one line" in directly[0]
