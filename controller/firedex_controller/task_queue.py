"""A thread that runs tasks one after the other, and retries with back-off."""

import logging
import queue
import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from firedex_controller.errors import ControllerBusy, ControllerError

__all__ = ["RetrySchedule", "TaskQueue"]

log = logging.getLogger("firedex.controller")

Result = TypeVar("Result")
START_TIMEOUT_SECONDS = 60.0
"""A request that has not been started after this time is cancelled."""
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0


class _CallTask(Generic[Result]):
    """A task whose result another thread waits for."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._outcome: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = (
            queue.SimpleQueue()
        )
        self._started = self._cancelled = False
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self._cancelled:
                return
            self._started = True
        try:
            self._outcome.put((self._function(), None))
        except BaseException as error:  # raised again in the waiting thread
            self._outcome.put((None, error))

    def wait(self) -> Result:
        try:
            result, error = self._outcome.get(timeout=START_TIMEOUT_SECONDS)
        except queue.Empty:
            with self._lock:
                self._cancelled = not self._started
            if self._cancelled:
                raise ControllerBusy from None
            result, error = self._outcome.get()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # set if there is no error


class TaskQueue:
    """Runs tasks in the order of their arrival, and ``tick`` every ``tick_seconds``."""

    def __init__(self, tick: Callable[[], None], tick_seconds: float) -> None:
        self._tick, self._tick_seconds = tick, tick_seconds
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def post(self, task: Callable[[], None]) -> None:
        """Queue a task and return at once."""
        self._tasks.put(task)

    def call(self, function: Callable[[], Result]) -> Result:
        """Queue a function and wait for its result; raise ControllerBusy if it is not started."""
        task = _CallTask(function)
        self._tasks.put(task)
        return task.wait()

    def run(self) -> None:
        """Run tasks; never returns."""
        due = monotonic()
        while True:
            try:
                task = self._tasks.get(timeout=max(due - monotonic(), 0.001))
            except queue.Empty:
                task = self._tick
            if monotonic() >= due and task is not self._tick:
                self._run(self._tick)
            if monotonic() >= due:
                due = monotonic() + self._tick_seconds
            self._run(task)

    def _run(self, task: Callable[[], None]) -> None:
        try:
            task()
        except ControllerError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("internal error in a task; the controller continues")


class RetrySchedule:
    """The switches that need another attempt, the times of these attempts, and the problems.

    The back-off doubles with every consecutive failure, because an attempt that ends with a timeout
    delays all other switches.
    """

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def __contains__(self, switch: str) -> bool:
        return switch in self._due

    def due(self, now: float) -> list[str]:
        """Return the switches whose next attempt is due."""
        return [switch for switch, due in self._due.items() if now >= due]

    def request(self, switch: str, now: float) -> None:
        """Schedule an attempt, unless one is scheduled already."""
        self._due.setdefault(switch, now)

    def record_success(self, switch: str) -> None:
        """Forget the failures of a switch."""
        for table in (self.problems, self._due, self._failures):
            table.pop(switch, None)

    def record_failure(self, switch: str, problem: str) -> None:
        """Schedule the next attempt after a failure; log a new problem."""
        failures = self._failures.get(switch, 0)
        self._failures[switch] = failures + 1
        self._due[switch] = monotonic() + min(RETRY_SECONDS * 2**failures, MAX_RETRY_SECONDS)
        if self.problems.get(switch) != problem:
            log.warning("switch %s: %s", switch, problem)
        self.problems[switch] = problem
