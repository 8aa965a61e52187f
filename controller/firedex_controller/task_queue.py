"""One thread that does one thing after the other, and the tasks that reach it from others."""

import logging
import queue
import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from firedex_controller.errors import ControllerError

__all__ = ["TaskQueue"]

log = logging.getLogger("firedex.controller")

Result = TypeVar("Result")
BEGIN_SECONDS = 60.0
"""Who waits longer than this for his task to begin is told to ask again, and it is not done."""


class _Asked(Generic[Result]):
    """A task that somebody waits for."""

    def __init__(self, what: Callable[[], Result]) -> None:
        self._what = what
        self._answer: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = (
            queue.SimpleQueue()
        )
        self._begun = self._given_up = False
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self._given_up:
                return
            self._begun = True
        try:
            self._answer.put((self._what(), None))
        except BaseException as error:  # handed to who asked
            self._answer.put((None, error))

    def wait(self) -> Result:
        try:
            result, error = self._answer.get(timeout=BEGIN_SECONDS)
        except queue.Empty:
            with self._lock:
                self._given_up = not self._begun
            if self._given_up:
                raise ControllerError("the controller is busy; ask again") from None
            result, error = self._answer.get()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # there is one where there is no error


class TaskQueue:
    """Tasks in the order in which they came; a beat when there are none, and now and then."""

    def __init__(self, beat: Callable[[], None], beat_seconds: float) -> None:
        self._beat, self._beat_seconds = beat, beat_seconds
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def post(self, task: Callable[[], None]) -> None:
        """Have it done, some time soon."""
        self._tasks.put(task)

    def ask(self, what: Callable[[], Result]) -> Result:
        """Have it done, and wait for what comes of it."""
        asked = _Asked(what)
        self._tasks.put(asked)
        return asked.wait()

    def run(self) -> None:
        """Do what comes, until the process ends."""
        due = monotonic()
        while True:
            try:
                task = self._tasks.get(timeout=max(due - monotonic(), 0.001))
            except queue.Empty:
                task = self._beat
            if monotonic() >= due and task is not self._beat:
                self._do(self._beat)
            if monotonic() >= due:
                due = monotonic() + self._beat_seconds
            self._do(task)

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except ControllerError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("a task failed; the controller goes on")
