"""UDP streams with DSCP marks: a sender and a receiver. Standard library only.

``send`` and ``receive`` are also the commands of this file, which run in namespaces of hosts.
"""

import json
import socket
import statistics
import struct
import sys
import time

PORT = 9000
HEADERS_BYTES = 42  # Ethernet, IP and UDP, which queues count
STAMP = struct.Struct("!BId")
QUIET_SECONDS = 0.4
LATE_SECONDS = 0.01
SO_RCVBUFFORCE = 33
LARGE_BYTES = 16 * 1024 * 1024


def send(
    address: str,
    seconds: float,
    frame_bytes: int,
    streams: list[dict[str, float]],
    together: bool,
) -> None:
    """Send streams; each has a number, a mark and a rate in packets per second.

    Packets are evenly spaced, or with ``together`` all streams send at once, the last one first.
    """
    offset = 0 if together else 1 / len(streams)
    sockets = {}
    for stream in streams:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(stream["dscp"]) << 2)
        sockets[int(stream["number"])] = sender
    padding = bytes(frame_bytes - HEADERS_BYTES - STAMP.size)
    start = time.monotonic()
    due = sorted(
        (
            ((number + place * offset) / stream["rate"], int(stream["number"]))
            for place, stream in enumerate(streams)
            for number in range(round(seconds * stream["rate"]))
        ),
        key=lambda packet: (packet[0], -packet[1]),
    )
    for number, (at, stream_number) in enumerate(due):
        while (wait := start + at - time.monotonic()) > 0:
            time.sleep(wait)
        if wait < -LATE_SECONDS:  # the machine stalled; do not send the missed packets in a burst
            start -= wait
        stamp = STAMP.pack(stream_number, number, time.monotonic())
        sockets[stream_number].sendto(stamp + padding, (address, PORT))
    sent = dict.fromkeys(sockets, 0)
    for _, stream_number in due:
        sent[stream_number] += 1
    print(json.dumps(sent))


def receive() -> None:
    """Receive until no packet arrives; print the packets and the median delay of each stream.

    ``meanwhile`` counts packets that arrived before the last one was sent.
    """
    arrivals: dict[int, list[tuple[float, float]]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, LARGE_BYTES)
        receiver.bind(("", PORT))
        receiver.settimeout(10)
        print("ready", flush=True)
        try:
            while True:
                packet = receiver.recv(2048)
                stream, _, sent = STAMP.unpack_from(packet)
                arrivals.setdefault(stream, []).append((sent, time.monotonic()))
                receiver.settimeout(QUIET_SECONDS)
        except TimeoutError:
            pass
    last_sent = max((sent for times in arrivals.values() for sent, _ in times), default=0.0)
    print(
        json.dumps(
            {
                stream: {
                    "all": len(times),
                    "meanwhile": sum(at <= last_sent for _, at in times),
                    "delay_seconds": statistics.median(at - sent for sent, at in times),
                }
                for stream, times in arrivals.items()
            }
        )
    )


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(**json.loads(sys.argv[2]))
    else:
        receive()
