"""The supervisor of a site: it starts parts in order, restarts them, and stops them in reverse.

It works in steps; the caller passes the time of each step, the function that starts a part and the
function that checks a part.

Exceptions::

    SiteError
    ├── AddressInUse     another process listens on the address of a part
    └── PartNotStarted   a part ended, or was not ready in time, at the first start
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from firedex.site.parts import Part, Probe

__all__ = [
    "AddressInUse",
    "PartNotStarted",
    "PartState",
    "RunningPart",
    "SiteError",
    "State",
    "Supervisor",
]

START_SECONDS = 60.0
CHECK_SECONDS = 5.0
"""Time between checks of a part that is up or external."""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0
STABLE_SECONDS = 60.0
"""After a part has run for this long, the back-off starts again."""


class SiteError(Exception):
    """Base class of the errors of this package."""


class AddressInUse(SiteError):
    """Another process listens on the address of a part."""

    def __init__(self, part: str, address: str) -> None:
        self.part, self.address = part, address
        super().__init__(
            f"{part}: another process already listens on {address}; if that process is the "
            f"{part}, set '{part}: {{at: ADDRESS}}' in the site file"
        )


class PartNotStarted(SiteError):
    """A part did not start; ``end_of_log`` contains the reason."""

    def __init__(self, part: str, reason: str, end_of_log: str) -> None:
        self.part, self.reason, self.end_of_log = part, reason, end_of_log
        super().__init__(f"{part}: {reason}" + (f"\n{end_of_log}" if end_of_log else ""))


class State(StrEnum):
    """State of a part."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    UNREACHABLE = "unreachable"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    """The state of a part, for display; an ``external`` part is not started by this command."""

    name: str
    address: str
    state: State
    external: bool
    pid: int | None = None
    restarts: int = 0
    detail: str = ""


class RunningPart(Protocol):
    """A process of a part."""

    pid: int

    def exit_code(self) -> int | None:
        """Return the exit code; None while it runs."""

    def stop(self) -> None:
        """Stop it."""

    def end_of_log(self) -> str:
        """Return the last part of its output."""


Launch = Callable[[Part], RunningPart]
Check = Callable[[Probe], bool]


class Supervisor:
    """Run all parts of a site, and call ``on_change`` for every change of state."""

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        launch: Launch,
        check: Check,
        on_change: Callable[[PartState], None],
    ) -> None:
        self._supervised = [_SupervisedPart(part, launch, check, on_change) for part in parts]

    def states(self) -> tuple[PartState, ...]:
        """Return the states of all parts, in order."""
        return tuple(part.state() for part in self._supervised)

    def step(self, now: float) -> None:
        """Check every part, and start the next one when all parts before it have been up.

        Raise PartNotStarted if a part fails at its first start.
        """
        for part in self._supervised:
            part.step(now)
            if not part.has_been_up:
                return

    def stop(self) -> None:
        """Stop all parts in reverse order."""
        for part in reversed(self._supervised):
            part.stop()


class _SupervisedPart:
    """One part and its process."""

    def __init__(
        self, part: Part, launch: Launch, check: Check, on_change: Callable[[PartState], None]
    ) -> None:
        self._part, self._launch, self._check, self._on_change = part, launch, check, on_change
        self._external = not part.command
        self._state, self._detail = State.WAITING, ""
        self._running: RunningPart | None = None
        self._started_at = self._next_check_at = self._restart_at = 0.0
        self._restarts = self._failures = 0
        self.has_been_up = self._external  # the others do not wait for an external part

    def state(self) -> PartState:
        return PartState(
            name=self._part.name,
            address=self._part.address,
            state=self._state,
            external=self._external,
            pid=None if self._running is None else self._running.pid,
            restarts=self._restarts,
            detail=self._detail,
        )

    def _set_state(self, state: State, detail: str = "") -> None:
        if (state, detail) != (self._state, self._detail):
            self._state, self._detail = state, detail
            self._on_change(self.state())

    def step(self, now: float) -> None:
        if self._external:
            self._check_if_due(now)
        elif self._running is None:
            if now >= self._restart_at:
                self._start(now)
        elif (code := self._running.exit_code()) is not None:
            self._handle_failure(now, f"exit code {code}", self._running)
        elif self._state == State.STARTING:
            self._wait_until_ready(now, self._running)
        else:
            self._check_if_due(now)

    def _start(self, now: float) -> None:
        self._restarts += self.has_been_up
        self._running = self._launch(self._part)
        self._started_at = now
        self._set_state(State.STARTING)

    def _wait_until_ready(self, now: float, running: RunningPart) -> None:
        if self._check(self._part.probe):
            self.has_been_up, self._next_check_at = True, now + CHECK_SECONDS
            self._set_state(State.UP)
        elif now - self._started_at > START_SECONDS:
            running.stop()
            self._handle_failure(now, f"not ready after {START_SECONDS:.0f} s", running)

    def _check_if_due(self, now: float) -> None:
        if now >= self._next_check_at:
            self._next_check_at = now + CHECK_SECONDS
            self._set_state(State.UP if self._check(self._part.probe) else State.UNREACHABLE)

    def _handle_failure(self, now: float, reason: str, running: RunningPart) -> None:
        running.stop()  # stops its children as well
        self._running = None
        if not self.has_been_up:
            self._set_state(State.FAILED, reason)
            raise PartNotStarted(self._part.name, reason, running.end_of_log())
        stable = now - self._started_at > STABLE_SECONDS
        self._failures = 0 if stable else self._failures + 1
        wait = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(self._failures, 10), MAX_BACKOFF_SECONDS)
        self._restart_at = now + wait
        self._set_state(State.FAILED, f"{reason}; restart in {wait:g} s")

    def stop(self) -> None:
        if self._running is not None:
            self._set_state(State.STOPPING)
            self._running.stop()
            self._running = None
            self._set_state(State.STOPPED)
