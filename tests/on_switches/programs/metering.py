"""Poisson flows with two packet sizes through meters, and one flow whose meter has headroom."""

import json
import sys
from dataclasses import replace

import numpy as np

from firedex.wire import PacketLimit
from firedex_emulation.testbed.experiment import StallMeter
from tests.on_switches.programs.switch_lab import Lab
from tests.support.desired_examples import flow_rule, network, shaped_port

DROP_RATES = (0.1, 0.3, 0.6, 0.9)
PACKETS_PER_SECOND = 300.0
BURST_PACKETS = 20
SIZES = (80, 900)
SECONDS = 8.0
FIRST_PORT = 20_000


def main(framework: str) -> None:
    lab = Lab(framework)
    lab.start_parts()
    flows = [
        replace(
            flow_rule(flow=number, priority=number),
            limit=PacketLimit(
                packets_per_second=PACKETS_PER_SECOND * (1 - drop_rate), burst_packets=BURST_PACKETS
            ),
        )
        for number, drop_rate in enumerate(DROP_RATES)
    ]
    flow_with_headroom = len(flows)
    flows.append(
        flow_rule(flow=flow_with_headroom, priority=1, packets_per_second=3 * PACKETS_PER_SECOND)
    )
    lab.put(network(*flows, ports=(shaped_port(8, bandwidth_bits_per_second=5e7),)))
    generator = np.random.default_rng(2)
    times, streams = [], []
    for stream in range(len(flows)):
        # Poisson arrivals, conditioned on their number.
        times.append(generator.uniform(0, SECONDS, int(PACKETS_PER_SECOND * SECONDS)))
        streams.append(np.full(len(times[-1]), stream))
    seconds, flow = np.concatenate(times), np.concatenate(streams)
    order = np.argsort(seconds, kind="stable")
    seconds, flow = seconds[order], flow[order]
    kind = generator.integers(0, 2, len(seconds))
    size = np.array(SIZES)[kind]
    traffic = lab.traffic(seconds, 2 * flow + kind, size, FIRST_PORT + 2 * flow)
    with StallMeter() as stalls, traffic as receive_all:
        seen = receive_all()
    metered_packets = [
        each["metered_out_packets"]
        for each in lab.ask("GET", "/v1/statistics")[1]["switches"][0]["flows"]
    ]
    delivered = [
        [seen.delivered(2 * number + which) for which in range(2)] for number in range(len(flows))
    ]
    print(
        json.dumps(
            {
                "delivered": dict(zip(map(str, DROP_RATES), delivered[:-1], strict=True)),
                "bystander": delivered[-1],
                "metered_out": metered_packets,
                "stalled_seconds": stalls.stalled_seconds,
                "sent": [int(seen.sent[2 * n : 2 * n + 2].sum()) for n in range(len(flows))],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
