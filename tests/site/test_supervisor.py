"""The supervisor, with a simulated clock and fake processes."""

import pytest

from firedex.site.parts import Part, Probe
from firedex.site.supervisor import (
    CHECK_SECONDS,
    FIRST_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    STABLE_SECONDS,
    START_SECONDS,
    PartNotStarted,
    PartState,
    State,
    Supervisor,
)


class FakeProcess:
    def __init__(self, pid: int) -> None:
        self.pid, self.code, self.stopped = pid, None, False

    code: int | None

    def exit_code(self) -> int | None:
        return self.code

    def stop(self) -> None:
        self.stopped = True

    def end_of_log(self) -> str:
        return "the end of the log"


class FakeSite:
    """A site with three parts; those in ``external`` are checked but not started."""

    def __init__(self, *external: str) -> None:
        self.started: list[str] = []
        self.running: dict[str, FakeProcess] = {}
        self.working_ports: set[int] = set()
        self.changes: list[tuple[str, State]] = []
        self.stopped: list[str] = []
        self.ports = {"broker": 1, "service": 2, "gateway": 3}
        parts = [
            Part(
                name=name,
                address=name,
                probe=Probe(host="here", port=port),
                command=() if name in external else (name,),
            )
            for name, port in self.ports.items()
        ]
        self.supervisor = Supervisor(
            parts,
            launch=self.launch,
            check=lambda probe: probe.port in self.working_ports,
            on_change=lambda state: self.changes.append((state.name, state.state)),
        )

    def launch(self, part: Part) -> FakeProcess:
        self.started.append(part.name)
        self.running[part.name] = FakeProcess(len(self.started))
        return self.running[part.name]

    def state(self, name: str) -> PartState:
        return next(state for state in self.supervisor.states() if state.name == name)

    def start_all(self) -> None:
        self.working_ports = {1, 2, 3}
        for step in range(6):
            self.supervisor.step(step * 0.01)
        assert [state.state for state in self.supervisor.states()] == [State.UP] * 3


def test_part_starts_when_the_parts_before_it_are_up() -> None:
    site = FakeSite()
    site.supervisor.step(0)
    site.supervisor.step(1)
    assert site.started == ["broker"]
    site.working_ports = {1}
    site.supervisor.step(2)
    site.supervisor.step(3)
    assert site.started == ["broker", "service"]
    site.working_ports = {1, 2}
    site.supervisor.step(4)
    assert site.started == ["broker", "service", "gateway"]
    assert site.state("gateway").state == State.STARTING


def test_other_parts_do_not_wait_for_an_external_part() -> None:
    site = FakeSite("broker")
    site.supervisor.step(0)
    assert site.state("broker").state == State.UNREACHABLE
    assert site.started == ["service"]
    site.working_ports = {1}
    site.supervisor.step(CHECK_SECONDS / 2)
    assert site.state("broker").state == State.UNREACHABLE
    site.supervisor.step(CHECK_SECONDS)
    assert site.state("broker").state == State.UP
    site.supervisor.stop()
    assert site.state("broker").state == State.UP


def test_failed_part_is_restarted_with_exponential_back_off() -> None:
    site = FakeSite()
    site.start_all()
    now, waits = 1.0, []
    for _ in range(9):
        site.running["service"].code = 9
        site.supervisor.step(now)
        failed_at, before = now, len(site.started)
        while len(site.started) == before:
            now += 0.25
            site.supervisor.step(now)
        waits.append(now - failed_at)
        site.supervisor.step(now)
    assert site.state("service").restarts == 9
    assert waits[0] == pytest.approx(2 * FIRST_BACKOFF_SECONDS, abs=0.3)
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(MAX_BACKOFF_SECONDS, abs=0.3)
    assert site.started.count("gateway") == site.started.count("broker") == 1
    # After a long run the back-off starts again.
    now += STABLE_SECONDS + 1
    site.running["service"].code = 9
    site.supervisor.step(now)
    site.supervisor.step(now + FIRST_BACKOFF_SECONDS)
    assert site.started.count("service") == 11


def test_state_of_a_failed_part_contains_exit_code_and_back_off() -> None:
    site = FakeSite()
    site.start_all()
    site.running["broker"].code = -9
    site.supervisor.step(1)
    state = site.state("broker")
    assert (state.state, state.pid) == (State.FAILED, None)
    assert state.detail == "exit code -9; restart in 1 s"


@pytest.mark.parametrize("failure", ["ends", "hangs"])
def test_part_that_fails_at_its_first_start_raises(failure: str) -> None:
    site = FakeSite()
    site.working_ports = {1}
    site.supervisor.step(0)
    site.supervisor.step(1)
    site.supervisor.step(2)
    if failure == "ends":
        site.running["service"].code = 2
    with pytest.raises(PartNotStarted, match="the end of the log") as raised:
        site.supervisor.step(3 if failure == "ends" else START_SECONDS + 3)
    assert raised.value.part == "service"
    assert site.running["service"].stopped
    site.supervisor.stop()
    assert site.running["broker"].stopped
    assert "gateway" not in site.started


def test_unreachable_part_is_not_restarted() -> None:
    site = FakeSite()
    site.start_all()
    site.working_ports = {1, 3}
    site.supervisor.step(2 * CHECK_SECONDS)
    assert site.state("service").state == State.UNREACHABLE
    site.working_ports = {1, 2, 3}
    site.supervisor.step(4 * CHECK_SECONDS)
    assert site.state("service").state == State.UP
    assert site.started == ["broker", "service", "gateway"]


def test_parts_stop_in_reverse_order() -> None:
    site = FakeSite()
    site.start_all()
    site.changes.clear()
    site.supervisor.stop()
    assert [name for name, state in site.changes if state == State.STOPPED] == [
        "gateway",
        "service",
        "broker",
    ]
    assert all(running.stopped for running in site.running.values())
