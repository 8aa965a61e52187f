"""The stage without switches: the site's parts and all parties as processes on loopback."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from firedex.child_process import (
    ChildProcess,
    ProgramMissing,
    answers,
    find_program,
    firedex_command,
)
from firedex.service_access import ServiceAccess, ServiceAccessError
from firedex.wire import Scenario, to_json
from firedex_emulation.embedded.link_paths import port_settings
from firedex_emulation.embedded.link_program import LinkOrders
from firedex_emulation.embedded.run_addresses import MOST_SUBSCRIBERS, RunAddresses
from firedex_emulation.emulation_orders import EMBEDDED_LABEL
from firedex_emulation.errors import CannotEmulate, EmulationError, PartFailed, TopologyRefused
from firedex_emulation.party_orders import PartyOrders
from firedex_emulation.stage import PATIENCE_SECONDS, Performance

__all__ = ["LoopbackStage", "check_embedded"]

HERE = "firedex_emulation.embedded"
POLL_SECONDS = 0.05
ENDLESS = ("--buffer-bytes", str(2**30), "--buffer-seconds", "3600")


def check_embedded(scenario: Scenario) -> None:
    """Raise CannotEmulate for what is missing, TopologyRefused for what this stage cannot do."""
    try:
        find_program("setpriv", "util-linux")
    except ProgramMissing as error:
        raise CannotEmulate(str(error)) from error
    if find_spec("amqtt") is None:
        raise CannotEmulate("not installed: the broker aMQTT (pip install amqtt)")
    if len(scenario.subscribers) > MOST_SUBSCRIBERS:
        raise TopologyRefused(
            "embedded", f"{len(scenario.subscribers)} subscribers; {MOST_SUBSCRIBERS} at most"
        )
    for switch in scenario.network.switches:
        if switch.error_rate:
            raise TopologyRefused("embedded", f"{switch.id}: packet errors are not emulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """How a part is started, and how to see that it is ready."""

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]


class LoopbackStage:
    """A site, its parts up; use it as a context manager: nothing of it is left afterwards."""

    def __init__(self, scenario: Scenario, *, bounded: bool) -> None:
        self._scenario, self._bounded = scenario, bounded
        self._children: dict[str, ChildProcess] = {}
        self._parts: dict[str, _Part] = {}
        self._left_out: list[str] = []
        self._undo = ExitStack()

    def __enter__(self) -> "LoopbackStage":
        try:
            self._set_up()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def _set_up(self) -> None:
        self.run_folder = Path(tempfile.mkdtemp(prefix="firedex-embedded-"))
        self._undo.callback(shutil.rmtree, self.run_folder, ignore_errors=True)
        self._addresses = RunAddresses([each.id for each in self._scenario.subscribers])
        self._undo.callback(self._addresses.close)
        self._undo.callback(self._stop_all)
        parts, link = self._addresses.parts, self._addresses.link
        self._broker = (parts, self._addresses.free_port(parts))
        self._service = (parts, self._addresses.free_port(parts))
        self._gateway = (parts, self._addresses.free_port(parts))
        self._link = (link, self._addresses.free_port(link))
        # All at once, since each takes a second or more, and none needs the others to start.
        for part in self._all_parts():
            self._parts[part.name] = part
            self._start_part(part)
        for part in self._parts.values():
            self._wait_until_ready(part)

    def _all_parts(self) -> tuple[_Part, ...]:
        site, whole = self.run_folder / "site.json", self.run_folder / "scenario.json"
        whole.write_text(to_json(self._scenario))
        empty = replace(
            self._scenario, publishers=(), subscribers=(), topics=(), timeline=(), phases=()
        )
        site.write_text(to_json(empty))
        service = f"http://{_text(self._service)}"
        gateway = [f"--listen={_text(self._gateway)}", f"--udp-listen={_text(self._gateway)}"]
        gateway += [f"--broker={_text(self._broker)}", f"--service={service}", "--seed=1"]
        orders = LinkOrders(
            scenario=str(whole),
            service=service,
            listen=self._link,
            gateway=self._gateway,
            places={
                name: (source, self._addresses.known[name])
                for name, source in self._addresses.source.items()
            },
        )
        return (
            _Part(
                name="broker",
                command=_python(f"{HERE}.broker_program", self._broker[0], str(self._broker[1])),
                ready=lambda: answers(*self._broker),
            ),
            _Part(
                name="service",
                command=firedex_command("serve", str(site), "--open")
                + [f"--listen={_text(self._service)}", f"--gateway={_text(self._gateway)}"]
                + [f"--state={self.run_folder / 'service.sqlite'}"],
                ready=self._service_is_well,
            ),
            _Part(
                name="gateway",
                command=_python("firedex.gateway", *gateway, *(() if self._bounded else ENDLESS)),
                ready=lambda: answers(*self._gateway),
            ),
            _Part(
                name="link",
                command=_python(f"{HERE}.link_program", orders.to_argument()),
                ready=lambda: answers(*self._link),
            ),
        )

    # -- what a choreography asks ------------------------------------------------------------------

    @property
    def service(self) -> ServiceAccess:
        """The service."""
        return ServiceAccess(f"http://{_text(self._service)}")

    def orders(self, performance: Performance, name: str) -> PartyOrders:
        """What a party must know."""
        publishing = [p.id for p in performance.scenario.publishers if p.publications]
        return PartyOrders(
            scenario=str(self.run_folder / "scenario.json"),
            name=name,
            run_folder=str(self.run_folder),
            service=f"http://{_text(self._service)}",
            broker=self._broker[0],
            broker_port=self._broker[1],
            mqtt_version="3.1.1",  # all that aMQTT speaks
            way=performance.way,
            seconds=performance.seconds,
            seed=performance.seed,
            records=str(performance.records / f"{performance.way}-{name}.parquet"),
            address=self._addresses.known.get(name, self._addresses.parts),
            source_address=self._addresses.source.get(name),
            gateway=_text(self._link),
            probes=publishing[:1] == [name],
        )

    def start_party(self, name: str, command: Sequence[str]) -> None:
        """Start a party's program."""
        self._children[f"party {name}"] = ChildProcess(command, self.run_folder / f"{name}.party")

    def wait_for_file(self, name: str, suffix: str, seconds: float = PATIENCE_SECONDS) -> Path:
        """Wait for a party's file; raise if the party, or a part, fails."""
        path = self.run_folder / f"{name}.{suffix}"
        until = time.monotonic() + seconds
        while not path.exists():
            self._check()
            if time.monotonic() > until:
                raise PartFailed(name, f"no {suffix} after {seconds:.0f} s{self._words(name)}")
            time.sleep(POLL_SECONDS)
        return path

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Refused: there is one link, between subscribers and gateway."""
        self._leave_out(f"{one}–{other} {'up' if up else 'down'}; links fail on real switches only")

    def kill(self, part: str, down_seconds: float) -> None:
        """Kill a part, and start it again after a while; returns when it runs."""
        if part not in self._parts:
            self._leave_out(f"the kill; there is no {part} without real switches")
        self._children.pop(part).kill()
        time.sleep(down_seconds)
        self._start_part(self._parts[part])
        self._wait_until_ready(self._parts[part])

    def wait_for_parts(self) -> None:
        """Nothing to wait for: here a kill returns when the part runs again."""

    def link_facts(self) -> Mapping[str, Sequence[str]]:
        """What the link was told."""
        facts: dict[str, list[str]] = {}
        for (switch, towards), port in port_settings(self._scenario).items():
            facts.setdefault(switch, []).append(
                f"to {towards or 'subscribers'}: {port.bits_per_second:g} bit/s, "
                f"{port.classes} classes, {port.buffer.packets} packets ({port.buffer.kind})"
            )
        return facts

    def notes(self) -> tuple[str, ...]:
        """What this is not, and what of the timeline it has left out."""
        return (EMBEDDED_LABEL, *self._left_out)

    def _leave_out(self, what: str) -> NoReturn:
        said = f"left out: {what}"
        self._left_out.append(said)
        raise EmulationError(said)

    # -- processes ---------------------------------------------------------------------------------

    def _start_part(self, part: _Part) -> None:
        log = self.run_folder / f"{part.name}.log"
        self._children[part.name] = ChildProcess(part.command, log)

    def _wait_until_ready(self, part: _Part) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not part.ready():
            self._check()
            if time.monotonic() > until:
                raise PartFailed(
                    part.name, f"not ready in time\n{self._children[part.name].last_words()}"
                )
            time.sleep(POLL_SECONDS)

    def _service_is_well(self) -> bool:
        try:
            self.service.ask("GET", "/v1/health", seconds=2.0)
        except ServiceAccessError:
            return False
        return True

    def _check(self) -> None:
        for name, child in self._children.items():
            if child.exit_code() not in (None, 0):
                raise PartFailed(name, f"ended with {child.exit_code()}\n{child.last_words()}")

    def _words(self, name: str) -> str:
        child = self._children.get(f"party {name}")
        return "" if child is None else f"\n{child.last_words()}"

    def _stop_all(self) -> None:
        """Parties first, all at once; then the parts, last started first."""
        for name, child in self._children.items():
            if name not in self._parts:
                child.terminate()
        for child in reversed(self._children.values()):
            child.stop()


def _text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", module, *arguments]
