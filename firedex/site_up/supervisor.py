"""Keeps a site's parts running: in order, awaited, started again, stopped in reverse.

Does its work in steps, each at a time that it is told; what starts a part and what looks whether it
works are given to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from firedex.site_up.errors import PartNotStarted
from firedex.site_up.parts import Part, Probe

__all__ = ["PartState", "RunningPart", "State", "Supervisor"]

START_SECONDS = 60.0
LOOK_SECONDS = 5.0
"""Between looks at a part that works, or that runs elsewhere."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 30.0
STEADY_SECONDS = 60.0
"""A part that lived this long is started again without having to wait long."""


class State(StrEnum):
    """Of a part."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    SILENT = "does not answer"
    DIED = "died"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    """What is shown of a part."""

    name: str
    address: str
    state: State
    elsewhere: bool
    pid: int | None = None
    restarts: int = 0
    detail: str = ""


class RunningPart(Protocol):
    """A process."""

    pid: int

    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""

    def stop(self) -> None:
        """End it."""

    def last_words(self) -> str:
        """The end of what it has said."""


Launch = Callable[[Part], RunningPart]
Works = Callable[[Probe], bool]


class Supervisor:
    """All parts of a site; ``changed`` is told of every change of state."""

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        launch: Launch,
        works: Works,
        changed: Callable[[PartState], None],
    ) -> None:
        self._kept = [_KeptPart(part, launch, works, changed) for part in parts]

    def states(self) -> tuple[PartState, ...]:
        """Of every part, in order."""
        return tuple(kept.state() for kept in self._kept)

    def step(self, now: float) -> None:
        """Look at every part and do what is due; a part starts when those before it have.

        Raises PartNotStarted if a part does not come up the first time.
        """
        for kept in self._kept:
            kept.step(now)
            if not kept.has_been_up:
                return

    def stop(self) -> None:
        """End everything, in reverse order."""
        for kept in reversed(self._kept):
            kept.stop()


class _KeptPart:
    """One part through its life."""

    def __init__(
        self, part: Part, launch: Launch, works: Works, changed: Callable[[PartState], None]
    ) -> None:
        self._part, self._launch, self._works, self._changed = part, launch, works, changed
        self._elsewhere = not part.command
        self._state, self._detail = State.WAITING, ""
        self._running: RunningPart | None = None
        self._started_at = self._look_at = self._again_at = 0.0
        self._restarts = self._failures = 0
        self.has_been_up = self._elsewhere  # nobody waits for what is not ours to start

    def state(self) -> PartState:
        return PartState(
            name=self._part.name,
            address=self._part.address,
            state=self._state,
            elsewhere=self._elsewhere,
            pid=None if self._running is None else self._running.pid,
            restarts=self._restarts,
            detail=self._detail,
        )

    def _become(self, state: State, detail: str = "") -> None:
        if (state, detail) != (self._state, self._detail):
            self._state, self._detail = state, detail
            self._changed(self.state())

    def step(self, now: float) -> None:
        if self._elsewhere:
            self._look(now)
        elif self._running is None:
            if now >= self._again_at:
                self._start(now)
        elif (code := self._running.exit_code()) is not None:
            self._died(now, f"ended with code {code}", self._running)
        elif self._state == State.STARTING:
            self._await(now, self._running)
        else:
            self._look(now)

    def _start(self, now: float) -> None:
        self._restarts += self.has_been_up
        self._running = self._launch(self._part)
        self._started_at = now
        self._become(State.STARTING)

    def _await(self, now: float, running: RunningPart) -> None:
        if self._works(self._part.probe):
            self.has_been_up, self._look_at = True, now + LOOK_SECONDS
            self._become(State.UP)
        elif now - self._started_at > START_SECONDS:
            running.stop()
            self._died(now, f"did not answer within {START_SECONDS:.0f} s", running)

    def _look(self, now: float) -> None:
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._become(State.UP if self._works(self._part.probe) else State.SILENT)

    def _died(self, now: float, why: str, running: RunningPart) -> None:
        running.stop()  # whatever it has started ends too
        self._running = None
        if not self.has_been_up:
            self._become(State.DIED, why)
            raise PartNotStarted(self._part.name, why, running.last_words())
        steady = now - self._started_at > STEADY_SECONDS
        self._failures = 0 if steady else self._failures + 1
        wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(self._failures, 10), LONGEST_WAIT_SECONDS)
        self._again_at = now + wait
        self._become(State.DIED, f"{why}; started again in {wait:g} s")

    def stop(self) -> None:
        if self._running is not None:
            self._become(State.STOPPING)
            self._running.stop()
            self._running = None
            self._become(State.STOPPED)
