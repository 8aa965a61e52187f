"""CPU time and delay of the gateway for each event, compared with a relay that only copies bytes.

Both relays stand between the same Mosquitto and one subscriber, in the same run. CPU time is that
of the relay's own process, so the plain sockets that send and receive do not count. The limits are
ratios, which are valid on fast and slow machines:

- CPU time: the gateway splits the stream into packets, decides about each event and counts it. It
  may use at most `MAX_CPU_RATIO` times the CPU time of the bare relay over TCP, and at most
  `MAX_SENSOR_CPU_RATIO` times over UDP, where each event is also converted to a datagram.
- Median delay: at a low rate the gateway may take at most `MAX_DELAY_RATIO` times as long as the
  bare relay, because it must not hold events back.

Two runs on a busy machine with two cores gave ratios of 1.2 and 1.8 (CPU, TCP), 3.6 and 7.5 (CPU,
UDP), and 0.6 to 0.9 (delays); the CPU time of the bare relay differed most between the runs.
A limit is exceeded if a change makes the work for each event several times as expensive, or if
events wait for a timer.
"""

import socket
import statistics
import struct
import threading
import time

from firedex.lab.benchmarks.measured_parts import (
    Part,
    event_packet,
    open_mqtt_socket,
    running_bare_relay,
    running_broker,
    running_gateway,
    send_events,
)
from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.transport.mqtt_sn import (
    Connack,
    Connect,
    MalformedMessage,
    Puback,
    Publish,
    Suback,
    Subscribe,
    decode,
    encode,
)

__all__ = ["gateway_speed"]

EVENTS = 100_000
PAYLOAD_BYTES = 100
PROBES = 500
PROBE_SECONDS = 0.002
TOPIC = "bench/events"
END = b"the end"
MAX_CPU_RATIO = 6.0
MAX_SENSOR_CPU_RATIO = 25.0
MAX_DELAY_RATIO = 3.0


def gateway_speed(report: Report) -> BenchmarkResult:
    """Run the benchmark."""
    with (
        running_broker() as broker,
        running_bare_relay(broker) as bare,
        running_gateway(broker) as gateway,
    ):
        report("CPU time of the bare relay")
        bare_cpu = _cpu_seconds_per_event(bare, broker)
        report("CPU time of the gateway, TCP")
        tcp_cpu = _cpu_seconds_per_event(gateway, broker)
        report("CPU time of the gateway, UDP")
        udp_cpu = _sensor_cpu_seconds_per_event(gateway, broker)
        report("delays")
        bare_delay = _median_delay(broker, bare.port)
        tcp_delay = _median_delay(broker, gateway.port)
        udp_delay = _sensor_median_delay(gateway, broker)
    return BenchmarkResult(
        name="gateway",
        comparisons=(
            _cpu_comparison("CPU time for each event, TCP", tcp_cpu, bare_cpu, MAX_CPU_RATIO),
            _cpu_comparison(
                "CPU time for each event, UDP (MQTT-SN)", udp_cpu, bare_cpu, MAX_SENSOR_CPU_RATIO
            ),
            _delay_comparison("median delay, TCP", tcp_delay, bare_delay),
            _delay_comparison("median delay, UDP (MQTT-SN)", udp_delay, bare_delay),
        ),
    )


def _cpu_comparison(what: str, gateway: float, bare: float, at_most: float) -> Comparison:
    return Comparison(
        what=f"{what}; {PAYLOAD_BYTES}-byte events to one subscriber",
        left="gateway",
        left_value=gateway * 1e6,
        right="bare relay over TCP",
        right_value=bare * 1e6,
        unit="µs",
        at_most=at_most,
    )


def _delay_comparison(what: str, gateway: float, bare: float) -> Comparison:
    return Comparison(
        what=f"{what}; {1 / PROBE_SECONDS:g} events per second",
        left="gateway",
        left_value=gateway * 1e3,
        right="bare relay over TCP",
        right_value=bare * 1e3,
        unit="ms",
        at_most=MAX_DELAY_RATIO,
    )


def _events() -> tuple[list[bytes], bytes]:
    packet = event_packet(TOPIC, bytes(PAYLOAD_BYTES))
    return [packet] * EVENTS, event_packet(TOPIC, END, qos=1, packet_id=1)


def _cpu_seconds_per_event(relay: Part, broker: Part) -> float:
    packets, last = _events()
    with open_mqtt_socket(relay.port, "sink", TOPIC) as sink:
        before = relay.cpu_seconds()
        source = threading.Thread(target=send_events, args=(broker.port, packets, last))
        source.start()
        received, tail = 0, b""
        while END not in tail:
            data = sink.recv(1 << 18)
            if not data:
                raise RuntimeError("the relay closed the connection")
            received += len(data)
            tail = (tail + data)[-64:]
        source.join()
        cpu_seconds = relay.cpu_seconds() - before
    if received < EVENTS * len(packets[0]):
        raise RuntimeError(f"received {received} of {EVENTS * len(packets[0])} bytes")
    return cpu_seconds / EVENTS


def _connect_sensor(gateway: Part) -> socket.socket:
    raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    raw.settimeout(20)
    raw.connect(("127.0.0.1", gateway.udp_port))
    raw.send(encode(Connect(client_id="sensor", duration_seconds=0)))
    if not isinstance(decode(raw.recv(1500)), Connack):
        raise TypeError("the gateway did not send CONNACK")
    raw.send(encode(Subscribe(message_id=1, topic=TOPIC, qos=1)))
    if not isinstance(decode(raw.recv(1500)), Suback):
        raise TypeError("the gateway did not send SUBACK")
    return raw


def _sensor_cpu_seconds_per_event(gateway: Part, broker: Part) -> float:
    packets, last = _events()
    with _connect_sensor(gateway) as raw:
        before = gateway.cpu_seconds()
        source = threading.Thread(target=send_events, args=(broker.port, packets, last))
        source.start()
        # This receiver may be too slow for all events. The last one is repeated until it is
        # acknowledged, and shows that the gateway has sent the others.
        while not (datagram := raw.recv(1500)).endswith(END):
            pass
        _acknowledge(raw, datagram)
        source.join()
        return (gateway.cpu_seconds() - before) / EVENTS


def _acknowledge(raw: socket.socket, datagram: bytes) -> None:
    message = decode(datagram)
    if isinstance(message, Publish):
        raw.send(
            encode(Puback(topic_id=message.topic_id, message_id=message.message_id, return_code=0))
        )


def _median_delay(broker: Part, port: int) -> float:
    with (
        open_mqtt_socket(port, "sink", TOPIC) as sink,
        open_mqtt_socket(broker.port, "source") as source,
    ):
        delays: list[float] = []
        for _ in range(PROBES):
            source.sendall(event_packet(TOPIC, struct.pack(">d", time.perf_counter())))
            data = sink.recv(4096)
            delays.append(time.perf_counter() - struct.unpack(">d", data[-8:])[0])
            time.sleep(PROBE_SECONDS)
        return statistics.median(delays)


def _sensor_median_delay(gateway: Part, broker: Part) -> float:
    with _connect_sensor(gateway) as sink, open_mqtt_socket(broker.port, "source") as source:
        delays: list[float] = []
        for _ in range(PROBES):
            source.sendall(event_packet(TOPIC, struct.pack(">d", time.perf_counter())))
            try:
                message = decode(sink.recv(1500))
            except MalformedMessage as error:
                raise RuntimeError(str(error)) from error
            if isinstance(message, Publish):
                sent = struct.unpack(">d", message.payload[-8:])[0]
                delays.append(time.perf_counter() - sent)
            time.sleep(PROBE_SECONDS)
        return statistics.median(delays)
