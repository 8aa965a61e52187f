"""A network of sites as plain network namespaces: no switch, no Mininet; starts within seconds.

::

    site0: to1 ══ veth ══ one0 ─┐             ┌─ one1 ══ veth ══ to2 :site0
                                │   relay     │
    site1: to0 ══ veth ══ other0┘             └─ other1 ══ veth ══ to0 :site2

Every site is the namespace of a process that only waits. All links pass through one relay process
(``delay_relay``), which adds their delays; the bandwidth is that of a token bucket at both ends.
Every interface of a site has the site's address, and there are routes to the neighbours only.

The namespaces have no name: they exist as long as their processes, which end with the process that
made them. Nothing is left on the machine, whatever happens. Needs root.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from firedex.system.processes import ChildProcess, ProgramMissing, find_program
from firedex_emulation.errors import DelayVerificationError, PartFailed, RequirementsMissing
from firedex_emulation.site_networks.hosts import SiteHosts
from firedex_emulation.site_networks.network import SiteNetwork
from firedex_emulation.topologies.delay_relay import PROGRAM, interface_names
from firedex_emulation.topologies.link_probes import LinkEnd, MeasuredDelay, measure_delay

__all__ = ["SiteNamespaces", "check_requirements"]

TOOLS = {
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
}
START_SECONDS = 20.0
BURST_BYTES = 16_000
QUEUE_SECONDS = 0.4
"""Longest time that a frame waits for the bandwidth of a link; then it is dropped."""
TOLERATED_SECONDS = 0.003
"""Accepted error of a measured round trip; all links share the process that delays them."""
ATTEMPTS = 5


def check_requirements() -> None:
    """Raise RequirementsMissing if namespaces cannot be made on this machine."""
    if os.geteuid() != 0:
        raise RequirementsMissing("network namespaces can be created only by root")
    try:
        for tool, package in TOOLS.items():
            find_program(tool, package)
    except ProgramMissing as missing:
        raise RequirementsMissing(str(missing)) from missing


class SiteNamespaces(SiteHosts):
    """The running namespaces and links; a context manager that removes them.

    Inside ``with SiteNamespaces(SITE_NETWORKS[25]) as hosts:``, ``hosts.command(site, words)``
    returns the command line that runs a program at a site; the caller starts it.
    """

    def __init__(self, network: SiteNetwork) -> None:
        check_requirements()
        super().__init__(network)
        self._holders: dict[str, ChildProcess] = {}
        self._relay: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory()
        try:
            self._make_namespaces()
            self._make_links()
            self._verify_delays()
        except BaseException:
            self.stop()
            raise

    def pid(self, site: str) -> int:
        """Return the id of the process that keeps the namespace of a site."""
        return self._holders[site].pid

    def stop(self) -> None:
        """End the processes of the namespaces and the relay; the kernel removes the rest."""
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.kill()
            relay.wait()
            for pipe in (relay.stdin, relay.stdout):
                if pipe is not None:
                    pipe.close()
        for holder in self._holders.values():
            holder.kill()
        self._folder.cleanup()

    def measure_link(self, number: int) -> MeasuredDelay:
        """Measure the delay of the link with this index in the network."""
        link = self.network.links[number]
        ends = [
            LinkEnd(pid=self.pid(site), interface=self._interface(neighbour))
            for site, neighbour in ((link.one, link.other), (link.other, link.one))
        ]
        return measure_delay(ends[0], ends[1], at_most_seconds=2 * link.delay_seconds)

    # -- building ------------------------------------------------------------------------------

    def _make_namespaces(self) -> None:
        log = Path(self._folder.name) / "namespaces.log"
        own = Path("/proc/self/ns/net").readlink()
        for site in self.network.sites:
            waits = [find_program("unshare", "util-linux"), "--net", "--", "sleep", "infinity"]
            self._holders[site] = ChildProcess(waits, log)
        deadline = time.monotonic() + START_SECONDS
        for site, holder in self._holders.items():
            while Path(f"/proc/{holder.pid}/ns/net").readlink() == own:
                if holder.exit_code() is not None or time.monotonic() > deadline:
                    raise PartFailed(f"namespace of {site}", holder.end_of_log() or "not created")
                time.sleep(0.005)

    def _make_links(self) -> None:
        delays = [str(round(link.delay_seconds * 1e9)) for link in self.network.links]
        relay = subprocess.Popen(
            [sys.executable, "-I", "-S", PROGRAM, *(d for delay in delays for d in (delay, delay))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._relay = relay
        self._wait_for_word(relay, "created")
        lines = []
        for number, link in enumerate(self.network.links):
            inside = interface_names(number)
            ends = ((link.one, link.other, inside[0]), (link.other, link.one, inside[1]))
            lines += [
                f"link add name {self._interface(neighbour)} netns {self.pid(site)} type veth "
                f"peer name {relay_end} netns {relay.pid}"
                for site, neighbour, relay_end in ends
            ]
        _run("links", ["ip", "-batch", "-"], "\n".join(lines))
        for site in self.network.sites:
            self._configure(site)
        if relay.stdin is not None:
            relay.stdin.write("\n")
            relay.stdin.flush()
        self._wait_for_word(relay, "ready")

    def _configure(self, site: str) -> None:
        """Give the interfaces of a site their address, routes and bandwidth."""
        own = self.network.address(site)
        script = ["ip link set lo up", "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 || true"]
        for neighbour, link in self.network.neighbours[site].items():
            name = self._interface(neighbour)
            script += [
                f"ethtool -K {name} tx off > /dev/null",  # the relay needs complete checksums
                f"ip link set {name} up",
                f"ip addr add {own}/32 dev {name}",
                f"ip route add {self.network.address(neighbour)}/32 dev {name} src {own}",
                f"tc qdisc add dev {name} root tbf rate {link.bandwidth_bits_per_second:.0f}bit "
                f"burst {BURST_BYTES} latency {QUEUE_SECONDS * 1000:.0f}ms",
            ]
        _run(f"interfaces of {site}", self.command(site, ["sh", "-e"]), "\n".join(script))

    def _interface(self, neighbour: str) -> str:
        """Return the name of a site's interface to a neighbour."""
        return f"to{self.network.sites.index(neighbour)}"

    def _wait_for_word(self, relay: subprocess.Popen[str], word: str) -> None:
        printed = relay.stdout.readline().strip() if relay.stdout else ""
        if printed != word:
            raise PartFailed("relay", f"exit code {relay.wait()} before it printed {word!r}")

    def _verify_delays(self) -> None:
        """Measure one link of each delay; the same process delays all of them."""
        examples = {link.delay_seconds: n for n, link in enumerate(self.network.links)}
        for delay, number in examples.items():
            for _ in range(ATTEMPTS):  # the machine may have been busy
                found = self.measure_link(number).round_trip_seconds
                if found is not None and abs(found - 2 * delay) <= TOLERATED_SECONDS:
                    break
            else:
                link = self.network.links[number]
                reason = "no probe arrived" if found is None else f"{found * 1000:.2f} ms was found"
                raise DelayVerificationError(f"{link.one}–{link.other}", 2 * delay, reason)

    def _set_link(self, number: int, *, up: bool) -> None:
        # At the relay: the sites keep their addresses and routes, as with an unplugged cable.
        if self._relay is None:
            raise PartFailed("relay", "the network is stopped")
        state = "up" if up else "down"
        for name in interface_names(number):
            namespace = f"--net=/proc/{self._relay.pid}/ns/net"
            _run("link", ["nsenter", namespace, "--", "ip", "link", "set", name, state])


def _run(what: str, command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PartFailed(what, done.stderr.strip())
