"""The stage of real switches: Mininet hosts in a sandbox, the site's parts as processes on them."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from firedex.service_access import ServiceAccess
from firedex.wire import Scenario, to_json
from firedex_emulation.emulated_network import EmulatedNetwork
from firedex_emulation.network_plan import EDGE_ADDRESS
from firedex_emulation.party_orders import PartyOrders
from firedex_emulation.sandbox import RUN
from firedex_emulation.site_processes import SERVICE_URL, SiteProcesses
from firedex_emulation.stage import PATIENCE_SECONDS, Performance

__all__ = ["SwitchStage"]


class SwitchStage:
    """A site on an emulated network, its parts up."""

    run_folder = RUN

    def __init__(
        self, network: EmulatedNetwork, scenario: Scenario, *, framework: str, bounded: bool
    ) -> None:
        self._network = network
        self._processes = SiteProcesses(network)
        site = RUN / "site.json"
        empty = replace(scenario, publishers=(), subscribers=(), topics=(), timeline=(), phases=())
        site.write_text(to_json(empty))
        self._processes.start_controller(framework)
        self._processes.start_edge(site, bounded=bounded)

    @property
    def service(self) -> ServiceAccess:
        """The service, as reached from the switch host."""
        return self._processes.service

    def orders(self, performance: Performance, name: str) -> PartyOrders:
        """What a party must know."""
        subscribers = self._network.subscribers
        publishing = [p.id for p in performance.scenario.publishers if p.publications]
        return PartyOrders(
            scenario=str(RUN / "scenario.json"),
            name=name,
            run_folder=str(RUN),
            service=SERVICE_URL,
            broker=EDGE_ADDRESS,
            way=performance.way,
            seconds=performance.seconds,
            seed=performance.seed,
            records=str(performance.records / f"{performance.way}-{name}.parquet"),
            address=subscribers[name].address if name in subscribers else EDGE_ADDRESS,
            probes=publishing[:1] == [name],
        )

    def start_party(self, name: str, command: Sequence[str]) -> None:
        """Start a program on a party's host."""
        hosts = {**self._network.publishers, **self._network.subscribers}
        self._processes.start(name, command, hosts[name].node)

    def wait_for_file(self, name: str, suffix: str, seconds: float = PATIENCE_SECONDS) -> Path:
        """Wait for a party's file; raise if the party, or a part, fails."""
        return self._processes.wait_for_file(name, suffix, seconds)

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Cut a link, or restore it."""
        self._network.set_link(one, other, up=up)

    def kill(self, part: str, down_seconds: float) -> None:
        """Kill a part at once, and have it started again after a while, beside what goes on."""
        self._processes.kill(part, down_seconds)

    def wait_for_parts(self) -> None:
        """Wait until all that were killed run again; raise if one does not."""
        self._processes.wait_for_parts()

    def link_facts(self) -> Mapping[str, Sequence[str]]:
        """What ``tc`` says of the ports to subscribers."""
        return {
            name: _classes_of(switch.hosts_port)
            for name, switch in self._network.managed.items()
            if switch.hosts_port
        }

    def notes(self) -> tuple[str, ...]:
        """What is wrong with the switches' queues."""
        return self._processes.switch_notes()


def _classes_of(port: str) -> list[str]:
    shown = subprocess.run(
        ["tc", "class", "show", "dev", port], capture_output=True, text=True, check=False
    )
    return sorted(line for line in shown.stdout.splitlines() if " htb " in line)
