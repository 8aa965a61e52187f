"""A thousand flows under traffic; one PUT changes class or meter of half of them, repeatedly."""

import json
import sys
import time

import numpy as np

from firedex.wire import DesiredNetwork
from firedex_emulation.testbed.experiment import StallMeter
from tests.on_switches.programs.switch_lab import Lab
from tests.support.desired_examples import flow_rule, network, shaped_port

FLOWS = 1000
PACKETS_PER_SECOND_EACH = 2.0
ROUNDS = 3
SECONDS = 9.0
PAYLOAD_BYTES = 100
FIRST_PORT = 20_000


def desired_network(version: int) -> DesiredNetwork:
    """Return the network of a version: even flows never change, odd ones change class or meter."""
    flows = []
    for number in range(FLOWS):
        change = version % 2 if number % 2 else 0
        flows.append(
            flow_rule(
                flow=number,
                priority=(number + (change if number % 4 == 1 else 0)) % 8,
                packets_per_second=200.0 + (100.0 * change if number % 4 == 3 else 0.0),
            )
        )
    return network(*flows, version=version, ports=(shaped_port(8, bandwidth_bits_per_second=1e8),))


def main(framework: str) -> None:
    lab = Lab(framework)
    lab.start_parts()
    first = lab.put(desired_network(1))
    generator = np.random.default_rng(3)
    each = int(SECONDS * PACKETS_PER_SECOND_EACH)
    start = generator.uniform(0, 1 / PACKETS_PER_SECOND_EACH, FLOWS)
    seconds = (start[:, None] + np.arange(each) / PACKETS_PER_SECOND_EACH).ravel()
    stream = np.repeat(np.arange(FLOWS), each)
    size = np.full(len(seconds), PAYLOAD_BYTES)
    changes = []
    with (
        StallMeter() as stalls,
        lab.traffic(seconds, stream, size, FIRST_PORT + 2 * stream) as receive_all,
    ):
        for version in range(2, 2 + ROUNDS):
            time.sleep(SECONDS / (ROUNDS + 2))
            changes.append(lab.put(desired_network(version)))
        result = receive_all()
    received = np.bincount(result.stream, minlength=FLOWS)
    unchanged = [n for n in range(FLOWS) if n % 2 == 0]
    reordered = sum(bool(np.any(np.diff(result.number[result.stream == n]) < 0)) for n in unchanged)
    print(
        json.dumps(
            {
                "first": first,
                "changes": changes,
                "sent": int(result.sent.sum()),
                "lost": int((result.sent - received).sum()),
                "lossy_flows": int((result.sent > received).sum()),
                "reordered_unchanged_flows": reordered,
                "stalled_seconds": stalls.stalled_seconds,
                "longest_delay_seconds": float(result.delay_seconds.max()),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
