"""UDP streams with a mark each, and who receives them. Standard library only; run in namespaces.

``send`` and ``receive`` are also this file's commands, since each runs in a host's namespace.
"""

import json
import socket
import statistics
import struct
import sys
import time

PORT = 9000
HEADERS_BYTES = 42  # Ethernet, IP, UDP: what queues count
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
    """Each stream: its number, mark and packets per second.

    Evenly spaced over all streams, or those of all streams ``together``, the last one's first.
    """
    apart = 0 if together else 1 / len(streams)
    sockets = {}
    for stream in streams:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(stream["dscp"]) << 2)
        sockets[int(stream["number"])] = sender
    padding = bytes(frame_bytes - HEADERS_BYTES - STAMP.size)
    started = time.monotonic()
    due = sorted(
        (
            ((number + place * apart) / stream["rate"], int(stream["number"]))
            for place, stream in enumerate(streams)
            for number in range(round(seconds * stream["rate"]))
        ),
        key=lambda packet: (packet[0], -packet[1]),
    )
    for number, (at, stream_number) in enumerate(due):
        while (wait := started + at - time.monotonic()) > 0:
            time.sleep(wait)
        if wait < -LATE_SECONDS:  # the machine stood still; what it missed is not sent in a burst
            started -= wait
        stamp = STAMP.pack(stream_number, number, time.monotonic())
        sockets[stream_number].sendto(stamp + padding, (address, PORT))
    sent = dict.fromkeys(sockets, 0)
    for _, stream_number in due:
        sent[stream_number] += 1
    print(json.dumps(sent))


def receive() -> None:
    """Until nothing has come for a while: how much of each stream, and its median delay.

    ``meanwhile`` is what came before the last packet was sent: without what queues held after.
    """
    came: dict[int, list[tuple[float, float]]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, LARGE_BYTES)
        receiver.bind(("", PORT))
        receiver.settimeout(10)
        print("ready", flush=True)
        try:
            while True:
                packet = receiver.recv(2048)
                stream, _, sent = STAMP.unpack_from(packet)
                came.setdefault(stream, []).append((sent, time.monotonic()))
                receiver.settimeout(QUIET_SECONDS)
        except TimeoutError:
            pass
    last_sent = max((sent for times in came.values() for sent, _ in times), default=0.0)
    print(
        json.dumps(
            {
                stream: {
                    "all": len(times),
                    "meanwhile": sum(at <= last_sent for _, at in times),
                    "delay_seconds": statistics.median(at - sent for sent, at in times),
                }
                for stream, times in came.items()
            }
        )
    )


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(**json.loads(sys.argv[2]))
    else:
        receive()
