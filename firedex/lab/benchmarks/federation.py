"""Cost of a hop between sites, compared with a Mosquitto bridge in the same run.

Every site is a Mosquitto and a ``firedex federator`` process on loopback. The bridge is a second
pair of Mosquitto brokers, one hop. It is measured in turns with the federation, and with the same
broker configuration.

- **Delay of a hop**: 1,000 QoS 0 events a second, published at site a; median and 99th percentile
  at site b (one hop) and at site c (two hops, through the federator of b), less the delay at a.
- **Rate through a relay**: a to c through b, events of 100 bytes, QoS 0 with and without TLS, QoS 1
  with the journal. The publisher waits while 1,000 events are under way, so none is dropped, and
  every event must arrive, in order.
- **CPU time**: of the federators, and of the brokers with the bridge, for each of these events.
- **New interest**: the time from SUBSCRIBE at b or c to the first event from a, where the federator
  reads the subscription in Mosquitto's log.
- **Healing**: six sites in a ring with two chords, 200 events a second, a lease of 0.5 s. The
  federator of a relay is killed, or stopped (SIGSTOP); the longest time without an event at any
  site that still runs.
- **NATS**: where ``nats-server`` is installed, delay and rate over one hop to a leaf node.
- **Idle traffic**: bytes of frames on a link in both directions, without the headers of TCP and IP.

The limits are ratios to the bridge or to the lease. The aims are absolute and hold for an idle
machine; they are printed beside the measured values and do not change the exit code.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from firedex.certificates.folder import CertificateFolder
from firedex.lab.benchmarks.federation_probes import (
    RATE_TOPIC,
    TOPIC,
    arrival_times,
    delays,
    events_per_second,
    longest_gap,
    quantile,
    seconds_until_served,
)
from firedex.lab.benchmarks.federation_sites import (
    Bridge,
    RunningFederation,
    running_bridge,
    wait_until_served,
)
from firedex.lab.benchmarks.nats_leaf import measure_nats, nats_is_installed
from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Figure, Report

__all__ = ["Workload", "federation_speed"]

LINE = (("a", "b"), ("b", "c"))
RING = tuple((f"s{number}", f"s{number % 6 + 1}") for number in range(1, 7))
CHORDS = (("s1", "s4"), ("s2", "s5"))
FILTER = "bench/#"
RELAY = "s2"
"""On the shortest path from s1, where events are published, to s3."""
LEASE_SECONDS = 0.5
PATIENT_LEASE_SECONDS = 5.0
"""Used while the processors are saturated, so that a busy neighbour is not considered lost."""
WINDOW_EVENTS = 1000
HEALING_INTERVAL_SECONDS = 0.005
STEADY_SECONDS = 0.5
HEALING_SECONDS = 3.0

MAX_HOP_RATIO = 15.0
MAX_EVENT_TIME_RATIO = 5.0
MAX_RELIABLE_EVENT_TIME_RATIO = 8.0
MAX_TLS_RATIO = 2.5
MAX_CPU_RATIO = 5.0
MAX_RELIABLE_CPU_RATIO = 7.0
MAX_KILL_GAP_RATIO = 1.5
MAX_SILENCE_GAP_RATIO = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How much is measured."""

    delay_rounds: int = 3
    delay_events: int = 4000
    rate_rounds: int = 3
    rate_events: int = 40_000
    reliable_events: int = 10_000
    subscriptions: int = 100
    healing_rounds: int = 5
    idle_seconds: float = 10.0


def federation_speed(report: Report, workload: Workload | None = None) -> BenchmarkResult:
    """Run the benchmark."""
    work = workload or Workload()
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with running_bridge(folder) as bridge:
            line = _measure_line(folder, bridge, work, report)
        secure = _measure_secure_line(folder, work, report)
        ring = _measure_ring(folder, work, report)
        nats = _measure_nats(folder, work, report)
    return BenchmarkResult(
        name="federation",
        comparisons=(*_line_comparisons(line, secure), *_ring_comparisons(ring)),
        figures=(*_line_figures(line, secure), *_ring_figures(ring), *nats),
    )


# -- measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DelayRound:
    """Delays of one round in seconds, by place: ``a``, ``b``, ``c``, ``first`` and ``second``.

    ``first`` and ``second`` are the brokers of the bridge.
    """

    samples: Mapping[str, Sequence[float]]

    def added(self, place: str, before: str, fraction: float) -> float:
        """Return by how much a quantile of the delay is larger at one place than at another."""
        return quantile(self.samples[place], fraction) - quantile(self.samples[before], fraction)


@dataclass(frozen=True, slots=True)
class _Line:
    delays: Sequence[DelayRound]
    rates: Sequence[tuple[float, float]]
    """Events per second of federation and bridge in each round, QoS 0."""
    reliable_rates: Sequence[tuple[float, float]]
    cpu_seconds: Mapping[tuple[int, str], float]
    """CPU time for each event, by QoS and by site, or ``bridge`` for both of its brokers."""
    served: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class _Ring:
    killed: Sequence[float]
    stopped: Sequence[float]
    idle_bytes_per_second: float


def _measure_line(folder: Path, bridge: Bridge, work: Workload, report: Report) -> _Line:
    report("starting three sites")
    interest = {"b": [FILTER], "c": [FILTER, RATE_TOPIC]}
    first, second = bridge.first_port, bridge.second_port
    with RunningFederation(
        folder / "line", LINE, interest=interest, lease_seconds=PATIENT_LEASE_SECONDS,
        broker_log=True,
    ) as federation:  # fmt: skip
        ports = federation.broker_ports
        wait_until_served(ports["a"], [ports["b"], ports["c"]], TOPIC)
        wait_until_served(ports["a"], [ports["c"]], RATE_TOPIC)
        wait_until_served(first, [second], TOPIC)
        rounds: list[DelayRound] = []
        for number in range(work.delay_rounds):
            report(f"delays, round {number + 1} of {work.delay_rounds}")
            across = delays(ports["a"], ports, events=work.delay_events, interval_seconds=0.001)
            over_bridge = delays(
                first, {"first": first, "second": second},
                events=work.delay_events, interval_seconds=0.001,
            )  # fmt: skip
            rounds.append(DelayRound({**across, **over_bridge}))
        rates: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
        cpu_seconds: dict[tuple[int, str], float] = {}
        for qos, events in ((0, work.rate_events), (1, work.reliable_events)):
            before = {site: federation.cpu_seconds(site) for site in ports}
            before["bridge"] = bridge.cpu_seconds()
            for number in range(work.rate_rounds):
                report(f"rate at QoS {qos}, round {number + 1} of {work.rate_rounds}")
                rates[qos].append(
                    (_rate(ports["a"], ports["c"], qos, events), _rate(first, second, qos, events))
                )
            after = {site: federation.cpu_seconds(site) for site in ports}
            after["bridge"] = bridge.cpu_seconds()
            for name, seconds in after.items():
                cpu_seconds[qos, name] = (seconds - before[name]) / (events * work.rate_rounds)
        served: dict[str, list[float]] = {}
        for site in "bc":
            report(f"new subscriptions at {site}")
            warm_up = 5
            times = seconds_until_served(
                ports["a"], ports[site], label=site, repeats=work.subscriptions + warm_up
            )
            served[site] = times[warm_up:]
    return _Line(rounds, rates[0], rates[1], cpu_seconds, served)


def _rate(publisher_port: int, subscriber_port: int, qos: int, events: int) -> float:
    return events_per_second(
        publisher_port, subscriber_port, qos=qos, events=events, window=WINDOW_EVENTS
    )


def _measure_secure_line(folder: Path, work: Workload, report: Report) -> list[float]:
    """Return the events per second at QoS 0 with TLS on the links."""
    report("starting three sites with TLS")
    certificates = CertificateFolder(folder / "certificates")
    now = datetime.now(UTC)
    certificates.create_authority("bench", now=now)
    certificates.issue(("a", "b", "c"), now=now)
    with RunningFederation(
        folder / "secure", LINE, interest={"c": [RATE_TOPIC]}, lease_seconds=PATIENT_LEASE_SECONDS,
        certificates=folder / "certificates",
    ) as federation:  # fmt: skip
        ports = federation.broker_ports
        wait_until_served(ports["a"], [ports["c"]], RATE_TOPIC)
        report("rate at QoS 0 with TLS")
        return [_rate(ports["a"], ports["c"], 0, work.rate_events) for _ in range(work.rate_rounds)]


def _measure_ring(folder: Path, work: Workload, report: Report) -> _Ring:
    report("starting six sites")
    sites = sorted({site for pair in RING for site in pair})
    with RunningFederation(
        folder / "ring", (*RING, *CHORDS), interest={site: [FILTER] for site in sites},
        lease_seconds=LEASE_SECONDS,
    ) as federation:  # fmt: skip
        federation.wait_until_connected()
        report("idle traffic")
        idle = _idle_bytes_per_second(federation, work.idle_seconds)
        killed = [
            _heal(federation, federation.kill, federation.restart, report, number)
            for number in range(work.healing_rounds)
        ]
        stopped = [
            _heal(federation, federation.suspend, federation.resume, report, number)
            for number in range(work.healing_rounds)
        ]
    return _Ring(killed, stopped, idle)


def _measure_nats(folder: Path, work: Workload, report: Report) -> tuple[Figure, ...]:
    if not nats_is_installed():
        return ()
    report("NATS leaf node")
    found = measure_nats(folder, delay_events=work.delay_events, rate_events=work.rate_events)
    median_us, p99_us = found.added_median_seconds * 1e6, found.added_p99_seconds * 1e6
    return (
        Figure(what="added delay, NATS leaf node, median", value=median_us, unit="µs"),
        Figure(what="added delay, NATS leaf node, p99", value=p99_us, unit="µs"),
        Figure(what="to a NATS leaf node", value=found.events_per_second, unit="events/s"),
    )


def _idle_bytes_per_second(federation: RunningFederation, seconds: float) -> float:
    """Return the bytes per second of the busiest link, in both directions."""

    def traffic() -> dict[tuple[str, str], int]:
        return {
            (site, link["neighbour"]): link["sent_bytes"] + link["received_bytes"]
            for site in federation.sites
            for link in federation.status(site)["own_links"]
        }

    before, begin = traffic(), time.monotonic()
    time.sleep(seconds)
    after, elapsed = traffic(), time.monotonic() - begin
    return max(after[link] - before[link] for link in before) / elapsed


def _heal(
    federation: RunningFederation,
    disturb: Callable[[str], None],
    repair: Callable[[str], None],
    report: Report,
    number: int,
) -> float:
    """Return the longest gap at a surviving site after the relay is disturbed."""
    report(f"healing, round {number + 1}")
    ports = {
        site: port for site, port in federation.broker_ports.items() if site not in (RELAY, "s1")
    }
    publisher = federation.broker_ports["s1"]
    wait_until_served(publisher, ports.values(), TOPIC)
    arrivals, disturbed_at = arrival_times(
        publisher, ports,
        interval_seconds=HEALING_INTERVAL_SECONDS,
        seconds=STEADY_SECONDS + HEALING_SECONDS,
        at_seconds=STEADY_SECONDS,
        action=lambda: disturb(RELAY),
    )  # fmt: skip
    repair(RELAY)
    federation.wait_until_connected()
    end = disturbed_at + HEALING_SECONDS
    return max(longest_gap(times, disturbed_at, end) for times in arrivals.values())


# -- results ---------------------------------------------------------------------------------------


def _hop_comparison(what: str, line: _Line, place: str, before: str) -> Comparison:
    pairs = [
        (found.added(place, before, 0.5), found.added("second", "first", 0.5))
        for found in line.delays
    ]
    return Comparison(
        what=f"{what}; median at 1,000 QoS 0 events per second",
        left="federation",
        left_value=median(own for own, _ in pairs) * 1e6,
        right="bridge, one hop",
        right_value=median(bridge for _, bridge in pairs) * 1e6,
        unit="µs",
        at_most=MAX_HOP_RATIO,
        rounds=tuple(own / bridge for own, bridge in pairs),
    )


def _rate_comparison(what: str, rates: Sequence[tuple[float, float]], at_most: float) -> Comparison:
    return Comparison(
        what=f"{what}; time for each event at the highest rate",
        left="federation, through a relay (two hops)",
        left_value=1e6 / median(own for own, _ in rates),
        right="bridge, one hop",
        right_value=1e6 / median(bridge for _, bridge in rates),
        unit="µs",
        at_most=at_most,
        rounds=tuple(bridge / own for own, bridge in rates),
    )


def _cpu_comparison(line: _Line, qos: int, at_most: float) -> Comparison:
    return Comparison(
        what=f"CPU time for each event at QoS {qos}",
        left="three federators (origin, relay and destination)",
        left_value=sum(line.cpu_seconds[qos, site] for site in "abc") * 1e6,
        right="two brokers with the bridge",
        right_value=line.cpu_seconds[qos, "bridge"] * 1e6,
        unit="µs",
        at_most=at_most,
    )


def _line_comparisons(line: _Line, secure: Sequence[float]) -> tuple[Comparison, ...]:
    return (
        _hop_comparison("added delay of the first hop", line, "b", "a"),
        _hop_comparison("added delay of the second hop, through a relay", line, "c", "b"),
        _rate_comparison("QoS 0 without TLS", line.rates, MAX_EVENT_TIME_RATIO),
        _rate_comparison("QoS 1 with journal", line.reliable_rates, MAX_RELIABLE_EVENT_TIME_RATIO),
        _cpu_comparison(line, 0, MAX_CPU_RATIO),
        _cpu_comparison(line, 1, MAX_RELIABLE_CPU_RATIO),
        Comparison(
            what="QoS 0 with TLS; time for each event at the highest rate",
            left="with TLS",
            left_value=1e6 / median(secure),
            right="without TLS",
            right_value=1e6 / median(own for own, _ in line.rates),
            unit="µs",
            at_most=MAX_TLS_RATIO,
        ),
    )


def _ring_comparisons(ring: _Ring) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(
            what=f"longest gap at a surviving site, one of six federators {what}",
            left="gap, median of the rounds",
            left_value=median(gaps),
            right="lease",
            right_value=LEASE_SECONDS,
            unit="s",
            at_most=at_most,
            rounds=tuple(gap / LEASE_SECONDS for gap in gaps),
        )
        for what, gaps, at_most in (
            ("killed", ring.killed, MAX_KILL_GAP_RATIO),
            ("stopped", ring.stopped, MAX_SILENCE_GAP_RATIO),
        )
    )


def _delay_figures(line: _Line) -> list[Figure]:
    hops = (
        ("first hop", "b", "a"),
        ("second hop, through a relay", "c", "b"),
        ("bridge", "second", "first"),
    )
    figures: list[Figure] = []
    for what, place, before in hops:
        for label, fraction, aim in (("median", 0.5, 300.0), ("p99", 0.99, None)):
            added = median(found.added(place, before, fraction) for found in line.delays)
            figures.append(
                Figure(
                    what=f"added delay, {what}, {label}",
                    value=added * 1e6,
                    unit="µs",
                    aim=None if place == "second" else aim,
                )
            )
    return figures


def _line_figures(line: _Line, secure: Sequence[float]) -> tuple[Figure, ...]:
    rates = (
        ("through a relay, QoS 0 without TLS", [own for own, _ in line.rates], 15_000.0),
        ("through a relay, QoS 0 with TLS", secure, None),
        ("through a relay, QoS 1 with journal", [own for own, _ in line.reliable_rates], 5_000.0),
        ("over the bridge, QoS 0", [bridge for _, bridge in line.rates], None),
        ("over the bridge, QoS 1", [bridge for _, bridge in line.reliable_rates], None),
    )
    served = [
        Figure(
            what=f"new subscription served, {hops} hop{'s' if hops > 1 else ''}, {label}",
            value=quantile(line.served[site], fraction) * 1e3,
            unit="ms",
            aim=10.0 * hops if label == "p99" else None,
        )
        for hops, site in ((1, "b"), (2, "c"))
        for label, fraction in (("median", 0.5), ("p99", 0.99))
    ]
    roles = (
        ("federator of the origin", "a"),
        ("federator of the relay", "b"),
        ("federator of the destination", "c"),
        ("both brokers with the bridge", "bridge"),
    )
    return (
        *_delay_figures(line),
        *(
            Figure(what=what, value=median(values), unit="events/s", aim=aim, at_least=True)
            for what, values, aim in rates
        ),
        *(
            Figure(
                what=f"CPU time for each event, QoS {qos}, {role}",
                value=line.cpu_seconds[qos, name] * 1e6,
                unit="µs",
            )
            for qos in (0, 1)
            for role, name in roles
        ),
        *served,
    )


def _ring_figures(ring: _Ring) -> tuple[Figure, ...]:
    gaps = (
        ("killed, median", median(ring.killed), 0.3),
        ("killed, worst", max(ring.killed), 1.0),
        ("stopped, median", median(ring.stopped), 0.7),
        ("stopped, worst", max(ring.stopped), 1.5),
    )
    return (
        *(
            Figure(what=f"longest gap, federator {what}", value=gap, unit="s", aim=aim)
            for what, gap, aim in gaps
        ),
        Figure(
            what="idle traffic of a link, both directions",
            value=ring.idle_bytes_per_second,
            unit="bytes/s",
            aim=2000.0,
        ),
    )
