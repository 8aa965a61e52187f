"""A Mininet link whose delay is real: there is no ``netem`` where we run, and Mininet's own
``delay=`` is then silently ignored.

Two veth pairs with ``delay_relay`` between them. The delay is measured when the link is made; one
that is not what was asked for is refused (``DelayNotReal``).

::

    net.addLink(s1, s2, cls=DelayedLink, delay_seconds=0.005)
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from mininet.link import Link

from firedex_emulation import delay_relay
from firedex_emulation.delay_measurement import LinkEnd, MeasuredDelay, measure_delay
from firedex_emulation.errors import DelayNotReal, PartFailed

__all__ = ["LONGEST_DELAY_SECONDS", "DelayedLink", "tolerance_seconds"]

LONGEST_DELAY_SECONDS = 2.0
TOLERATED_SECONDS = 0.001
TOLERATED_SHARE = 0.05
ATTEMPTS = 4
"""A machine that stood still for a moment says nothing of the link: measure again."""


def tolerance_seconds(round_trip_seconds: float) -> float:
    """By how much a measured round trip may differ from what was asked for."""
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
        for asked in (self.delay_seconds, self.delay_back_seconds):
            if not 0 <= asked <= LONGEST_DELAY_SECONDS:
                raise DelayNotReal(
                    f"{node1}–{node2}",
                    self.delay_seconds + self.delay_back_seconds,
                    f"and each way has 0 to {LONGEST_DELAY_SECONDS:g} s",
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
        """Two pairs with the relay between them, in place of Mininet's one pair."""
        delays = [str(round(d * 1e9)) for d in (self.delay_seconds, self.delay_back_seconds)]
        relay = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(delay_relay.__file__)), *delays],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._relay = relay
        name = f"{intfname1}–{intfname2}"
        _await(relay, "here", name)
        ends = ((intfname1, addr1, node1), (intfname2, addr2, node2))
        for inside, (interface, address, node) in zip(delay_relay.INTERFACES, ends, strict=True):
            command = ["ip", "link", "add", "name", interface]
            command += ["address", address] if address else []
            command += ["netns", str(node.pid), "type", "veth"]
            command += ["peer", "name", inside, "netns", str(relay.pid)]
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                self._end_relay()
                raise PartFailed(f"link {name}", made.stderr.strip())
        if relay.stdin is not None:
            relay.stdin.write("\n")
            relay.stdin.flush()
        _await(relay, "ready", name)

    def verify(self) -> MeasuredDelay:
        """Measure the link; DelayNotReal if it is not as it was asked to be."""
        asked = self.delay_seconds + self.delay_back_seconds
        ends = []
        for interface in (self.intf1, self.intf2):
            interface.ifconfig("up")
            ends.append(LinkEnd(pid=interface.node.pid, interface=interface.name))
        found = None
        for attempt in range(ATTEMPTS):
            measured = measure_delay(*ends, at_most_seconds=asked)
            found = measured.round_trip_seconds
            if found is None and attempt > 0:
                break
            if found is not None and abs(found - asked) <= tolerance_seconds(asked):
                return measured
        said = "nothing came through" if found is None else f"{found * 1000:.2f} ms was measured"
        raise DelayNotReal(f"{self.intf1}–{self.intf2}", asked, said)

    def stop(self) -> None:
        """Take the link away; its relay ends, and with it the interfaces between."""
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


def _await(relay: subprocess.Popen[str], word: str, link: str) -> None:
    said = relay.stdout.readline().strip() if relay.stdout else ""
    if said != word:
        raise PartFailed(f"relay of {link}", f"ended with code {relay.wait()} before {word!r}")
