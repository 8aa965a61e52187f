"""The supervisor by itself: steps at times that a test chooses, processes that do nothing."""

import pytest

from firedex.site_up.errors import PartNotStarted
from firedex.site_up.parts import Part, Probe
from firedex.site_up.supervisor import (
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    LOOK_SECONDS,
    START_SECONDS,
    STEADY_SECONDS,
    PartState,
    State,
    Supervisor,
)


class Running:
    def __init__(self, pid: int) -> None:
        self.pid, self.code, self.stopped = pid, None, False

    code: int | None

    def exit_code(self) -> int | None:
        return self.code

    def stop(self) -> None:
        self.stopped = True

    def last_words(self) -> str:
        return "so it ends"


class Scene:
    """Three parts, of which ``elsewhere`` are only looked at."""

    def __init__(self, *elsewhere: str) -> None:
        self.started: list[str] = []
        self.running: dict[str, Running] = {}
        self.works: set[int] = set()
        self.said: list[tuple[str, State]] = []
        self.stopped: list[str] = []
        self.ports = {"broker": 1, "service": 2, "gateway": 3}
        parts = [
            Part(
                name=name,
                address=name,
                probe=Probe(host="here", port=port),
                command=() if name in elsewhere else (name,),
            )
            for name, port in self.ports.items()
        ]
        self.supervisor = Supervisor(
            parts,
            launch=self.launch,
            works=lambda probe: probe.port in self.works,
            changed=lambda state: self.said.append((state.name, state.state)),
        )

    def launch(self, part: Part) -> Running:
        self.started.append(part.name)
        self.running[part.name] = Running(len(self.started))
        return self.running[part.name]

    def state(self, name: str) -> PartState:
        return next(state for state in self.supervisor.states() if state.name == name)

    def all_up(self) -> None:
        self.works = {1, 2, 3}
        for step in range(6):
            self.supervisor.step(step * 0.01)
        assert [state.state for state in self.supervisor.states()] == [State.UP] * 3


def test_a_part_starts_when_those_before_it_work() -> None:
    scene = Scene()
    scene.supervisor.step(0)
    scene.supervisor.step(1)
    assert scene.started == ["broker"]
    scene.works = {1}
    scene.supervisor.step(2)
    scene.supervisor.step(3)
    assert scene.started == ["broker", "service"]
    scene.works = {1, 2}
    scene.supervisor.step(4)
    assert scene.started == ["broker", "service", "gateway"]
    assert scene.state("gateway").state == State.STARTING


def test_what_runs_elsewhere_is_looked_at_and_waited_for_by_nobody() -> None:
    scene = Scene("broker")
    scene.supervisor.step(0)
    assert scene.state("broker").state == State.SILENT
    assert scene.started == ["service"]
    scene.works = {1}
    scene.supervisor.step(LOOK_SECONDS / 2)
    assert scene.state("broker").state == State.SILENT
    scene.supervisor.step(LOOK_SECONDS)
    assert scene.state("broker").state == State.UP
    scene.supervisor.stop()
    assert scene.state("broker").state == State.UP


def test_a_part_that_dies_is_started_again_and_waits_longer_each_time() -> None:
    scene = Scene()
    scene.all_up()
    now, waits = 1.0, []
    for _ in range(9):
        scene.running["service"].code = 9
        scene.supervisor.step(now)
        died_at, before = now, len(scene.started)
        while len(scene.started) == before:
            now += 0.25
            scene.supervisor.step(now)
        waits.append(now - died_at)
        scene.supervisor.step(now)
    assert scene.state("service").restarts == 9
    assert waits[0] == pytest.approx(2 * FIRST_WAIT_SECONDS, abs=0.3)
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(LONGEST_WAIT_SECONDS, abs=0.3)
    assert scene.started.count("gateway") == scene.started.count("broker") == 1
    # After a steady life it is back soon.
    now += STEADY_SECONDS + 1
    scene.running["service"].code = 9
    scene.supervisor.step(now)
    scene.supervisor.step(now + FIRST_WAIT_SECONDS)
    assert scene.started.count("service") == 11


def test_whoever_dies_is_named_with_the_wait() -> None:
    scene = Scene()
    scene.all_up()
    scene.running["broker"].code = -9
    scene.supervisor.step(1)
    state = scene.state("broker")
    assert (state.state, state.pid) == (State.DIED, None)
    assert state.detail == "ended with code -9; started again in 1 s"


@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_a_part_that_never_comes_up_ends_it_all(how: str) -> None:
    scene = Scene()
    scene.works = {1}
    scene.supervisor.step(0)
    scene.supervisor.step(1)
    scene.supervisor.step(2)
    if how == "ends":
        scene.running["service"].code = 2
    with pytest.raises(PartNotStarted, match="so it ends") as raised:
        scene.supervisor.step(3 if how == "ends" else START_SECONDS + 3)
    assert raised.value.part == "service"
    assert scene.running["service"].stopped
    scene.supervisor.stop()
    assert scene.running["broker"].stopped
    assert "gateway" not in scene.started


def test_a_silent_part_is_shown_and_left_alone() -> None:
    scene = Scene()
    scene.all_up()
    scene.works = {1, 3}
    scene.supervisor.step(2 * LOOK_SECONDS)
    assert scene.state("service").state == State.SILENT
    scene.works = {1, 2, 3}
    scene.supervisor.step(4 * LOOK_SECONDS)
    assert scene.state("service").state == State.UP
    assert scene.started == ["broker", "service", "gateway"]


def test_everything_stops_in_reverse_order() -> None:
    scene = Scene()
    scene.all_up()
    scene.said.clear()
    scene.supervisor.stop()
    assert [name for name, state in scene.said if state == State.STOPPED] == [
        "gateway",
        "service",
        "broker",
    ]
    assert all(running.stopped for running in scene.running.values())
