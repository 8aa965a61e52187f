"""Flows of equal load, in total 2.5 times the bandwidth of the trunk, with and without rules."""

import json
import sys

import numpy as np

from firedex.wire import ShapedPort
from firedex_emulation.testbed.experiment import StallMeter
from tests.on_switches.programs.switch_lab import Lab, StreamResult
from tests.support.desired_examples import flow_rule, network, shaped_port

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
            lab.put(network(version=1, ports=(port_with_classes(1),)))
            figures = {"without": flow_figures(send_poisson_streams(lab, count, rate), count)}
        else:
            lab.put(network(*flows, version=1, ports=(port_with_classes(count),)))
            figures = {"idle": flow_figures(send_poisson_streams(lab, 1, rate), 1)}
            figures["with"] = flow_figures(send_poisson_streams(lab, count, rate), count)
    print(json.dumps({**figures, "stalled_seconds": stalls.stalled_seconds}))


def port_with_classes(classes: int) -> ShapedPort:
    return shaped_port(
        classes, bandwidth_bits_per_second=TRUNK_BITS_PER_SECOND, limit_packets=QUEUE_PACKETS
    )


def send_poisson_streams(lab: Lab, count: int, rate: float) -> StreamResult:
    """Send one Poisson stream for each flow."""
    generator = np.random.default_rng(1)
    times, streams = [], []
    for number in range(count):
        gaps = generator.exponential(1 / rate, int(2 * rate * SECONDS) + 50)
        at = np.cumsum(gaps)
        at = at[at < SECONDS]
        times.append(at)
        streams.append(np.full(len(at), number))
    seconds, stream = np.concatenate(times), np.concatenate(streams)
    size = np.full(len(seconds), FRAME_BYTES - HEADERS_BYTES)
    with lab.traffic(seconds, stream, size, FIRST_PORT + 2 * stream) as look:
        return look()


def flow_figures(figures: StreamResult, count: int) -> list[tuple[float, float, float]]:
    """Return the fractions delivered during the load and in total, and the median delays."""
    return [
        (
            float(
                ((figures.stream == stream) & figures.arrived_during_load).sum()
                / figures.sent[stream]
            ),
            figures.delivered(stream),
            figures.median_delay(stream) if figures.delivered(stream) else -1.0,
        )
        for stream in range(count)
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
