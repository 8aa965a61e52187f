"""A Mininet link with a real, measured delay.

Mininet's own ``delay=`` needs the kernel module ``netem`` and is silently ignored without it. This
link is two veth pairs with ``delay_relay`` between them. Its delay is measured when it is created,
by probe frames sent at one end and timed at the other; ``DelayVerificationError`` is raised if it
is not the requested one. Probes have an experimental EtherType and a destination that bridges
never forward, so they may also cross a network in use.

::

    net.addLink(s1, s2, cls=DelayedLink, delay_seconds=0.005)
"""

import subprocess
import sys
from typing import Any

from mininet.link import Link

from firedex_emulation.errors import DelayVerificationError, PartFailed
from firedex_emulation.topologies.delay_relay import PROGRAM, interface_names
from firedex_emulation.topologies.link_probes import LinkEnd, MeasuredDelay, measure_delay

__all__ = [
    "MAX_DELAY_SECONDS",
    "DelayedLink",
    "tolerance_seconds",
]

MAX_DELAY_SECONDS = 2.0
TOLERATED_SECONDS = 0.001
TOLERATED_SHARE = 0.05
ATTEMPTS = 12
"""The machine may have been busy during a measurement, so it is repeated."""


def tolerance_seconds(round_trip_seconds: float) -> float:
    """Return the accepted difference between measured and requested round-trip time."""
    return max(TOLERATED_SECONDS, TOLERATED_SHARE * round_trip_seconds)


class DelayedLink(Link):  # type: ignore[misc]  # Mininet ships no types
    """A link that holds each frame for ``delay_seconds`` (``delay_back_seconds`` the other way)."""

    def __init__(
        self,
        node1: Any,
        node2: Any,
        *,
        delay_seconds: float,
        delay_back_seconds: float | None = None,
        **options: Any,
    ) -> None:
        self.delay_seconds = delay_seconds
        self.delay_back_seconds = (
            delay_seconds if delay_back_seconds is None else delay_back_seconds
        )
        for requested in (self.delay_seconds, self.delay_back_seconds):
            if not 0 <= requested <= MAX_DELAY_SECONDS:
                raise DelayVerificationError(
                    f"{node1}–{node2}",
                    self.delay_seconds + self.delay_back_seconds,
                    f"but each direction must have from 0 to {MAX_DELAY_SECONDS:g} s",
                )
        self._relay: subprocess.Popen[str] | None = None
        super().__init__(node1, node2, **options)
        try:
            self.measured = self.verify()
        except BaseException:
            self._end_relay()
            raise

    def makeIntfPair(  # noqa: N802  # Mininet's name for it
        self,
        intfname1: str,
        intfname2: str,
        addr1: str | None = None,
        addr2: str | None = None,
        node1: Any = None,
        node2: Any = None,
        deleteIntfs: bool = False,  # noqa: ARG002, N803
    ) -> None:
        """Create two veth pairs with the relay between them, instead of Mininet's one pair."""
        delays = [str(round(d * 1e9)) for d in (self.delay_seconds, self.delay_back_seconds)]
        relay = subprocess.Popen(
            [sys.executable, "-I", "-S", PROGRAM, *delays],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._relay = relay
        name = f"{intfname1}–{intfname2}"
        _wait_for_word(relay, "created", name)
        ends = ((intfname1, addr1, node1), (intfname2, addr2, node2))
        for inside, (interface, address, node) in zip(interface_names(0), ends, strict=True):
            command = ["ip", "link", "add", "name", interface]
            command += ["address", address] if address else []
            command += ["netns", str(node.pid), "type", "veth"]
            command += ["peer", "name", inside, "netns", str(relay.pid)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                self._end_relay()
                raise PartFailed(f"link {name}", result.stderr.strip())
        if relay.stdin is not None:
            relay.stdin.write("\n")
            relay.stdin.flush()
        _wait_for_word(relay, "ready", name)

    def verify(self) -> MeasuredDelay:
        """Measure the link; raise DelayVerificationError if the delay is not as requested."""
        requested = self.delay_seconds + self.delay_back_seconds
        ends = []
        for interface in (self.intf1, self.intf2):
            interface.ifconfig("up")
            ends.append(LinkEnd(pid=interface.node.pid, interface=interface.name))
        found = None
        for attempt in range(ATTEMPTS):
            measured = measure_delay(*ends, at_most_seconds=requested)
            found = measured.round_trip_seconds
            if found is None and attempt > 0:
                break
            if found is not None and abs(found - requested) <= tolerance_seconds(requested):
                return measured
        reason = "no probe arrived" if found is None else f"{found * 1000:.2f} ms was measured"
        raise DelayVerificationError(f"{self.intf1}–{self.intf2}", requested, reason)

    def stop(self) -> None:
        """Remove the link and stop its relay, which removes the interfaces in between."""
        super().stop()
        self._end_relay()

    def _end_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is None:
            return
        relay.kill()
        relay.wait()
        for pipe in (relay.stdin, relay.stdout):
            if pipe is not None:
                pipe.close()


def _wait_for_word(relay: subprocess.Popen[str], word: str, link: str) -> None:
    printed = relay.stdout.readline().strip() if relay.stdout else ""
    if printed != word:
        raise PartFailed(f"relay of {link}", f"exit code {relay.wait()} before it printed {word!r}")
