"""Flows of equal load, 2.5 times what the trunk carries: with rules and without."""

import json
import sys

import numpy as np
from desired_examples import flow_rule, network, shaped_port

from experiments.switch_lab import Lab, Seen
from firedex.wire import ShapedPort
from firedex_emulation.stall_meter import StallMeter

TRUNK_BITS_PER_SECOND = 10e6
OVERLOAD = 2.5
FRAME_BYTES, HEADERS_BYTES = 500, 42
SECONDS = 5.0
QUEUE_PACKETS = 250
FIRST_PORT = 20_000


def main(framework: str, classes: str, without: str = "") -> None:
    count = int(classes)
    lab = Lab(framework)
    lab.start_parts()
    rate = OVERLOAD * TRUNK_BITS_PER_SECOND / (8 * FRAME_BYTES) / count
    flows = [
        flow_rule(flow=number, priority=number, packets_per_second=5 * rate)
        for number in range(count)
    ]
    with StallMeter() as stalls:
        if without:
            lab.put(network(version=1, ports=(port_with(1),)))
            seen = {"without": told(offered(lab, count, rate), count)}
        else:
            lab.put(network(*flows, version=1, ports=(port_with(count),)))
            seen = {"idle": told(offered(lab, 1, rate), 1)}
            seen["with"] = told(offered(lab, count, rate), count)
    print(json.dumps({**seen, "stalled_seconds": stalls.stalled_seconds}))


def port_with(classes: int) -> ShapedPort:
    return shaped_port(
        classes, bandwidth_bits_per_second=TRUNK_BITS_PER_SECOND, limit_packets=QUEUE_PACKETS
    )


def offered(lab: Lab, count: int, rate: float) -> Seen:
    """Poisson streams, one for each flow."""
    generator = np.random.default_rng(1)
    times, streams = [], []
    for stream in range(count):
        gaps = generator.exponential(1 / rate, int(2 * rate * SECONDS) + 50)
        at = np.cumsum(gaps)
        at = at[at < SECONDS]
        times.append(at)
        streams.append(np.full(len(at), stream))
    seconds, stream = np.concatenate(times), np.concatenate(streams)
    size = np.full(len(seconds), FRAME_BYTES - HEADERS_BYTES)
    with lab.traffic(seconds, stream, size, FIRST_PORT + 2 * stream) as look:
        return look()


def told(seen: Seen, count: int) -> list[tuple[float, float, float]]:
    """Of each flow: what arrived while the load lasted, what arrived at all, the median delay."""
    return [
        (
            float(((seen.stream == stream) & seen.arrived_during_load).sum() / seen.sent[stream]),
            seen.delivered(stream),
            seen.median_delay(stream) if seen.delivered(stream) else -1.0,
        )
        for stream in range(count)
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
