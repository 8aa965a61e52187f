"""Programs of ours as processes that never outlive the one that started them.

The kernel ends a child when the thread that started it ends, also by ``kill -9`` (``setpriv
--pdeathsig``): start children in the main thread. A child is a session of its own, so that Ctrl-C
reaches only who started it, who then stops it in order.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["ChildProcess", "ProgramMissing", "answers", "find_program", "firedex_command"]

FAREWELL_SECONDS = 5.0
LARGEST_LOG_BYTES = 10 * 1024 * 1024
LAST_WORDS_BYTES = 2000
SYSTEM_PATHS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class ProgramMissing(Exception):
    """A program that is needed is not installed; the message says from which package it comes."""


def find_program(name: str, package: str) -> str:
    """Where a program is; also where only root has it on its path."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATHS}")
    if found is None:
        raise ProgramMissing(f"{name} is not installed (apt-get install {package})")
    return found


def firedex_command(*words: str) -> list[str]:
    """One of our own commands, by this very Python."""
    return [sys.executable, "-W", "ignore", "-c", "from firedex.cli import main; main()", *words]


def answers(host: str, port: int, seconds: float = 1.0) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=seconds):
            return True
    except OSError:
        return False


def _ends_with(parent: int) -> list[str]:
    """Goes before a command that is to end with its parent.

    A parent that died before the kernel was told leaves a child that nobody would end: it looks for
    its parent once the kernel knows, and goes no further without.
    """
    told = [find_program("setpriv", "util-linux"), "--pdeathsig", "KILL"]
    look = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'
    return [*told, "/bin/sh", "-c", look, str(parent)]


class ChildProcess:
    """A running program; what it says goes to the end of ``log``."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        if log.exists() and log.stat().st_size > LARGEST_LOG_BYTES:
            log.replace(log.with_name(f"{log.name}.old"))
        with log.open("ab") as output:
            self._begins_at = output.tell()
            self._process = subprocess.Popen(  # noqa: S603  # arguments are a list, never a shell
                [*_ends_with(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to end."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def stop(self, seconds: float = FAREWELL_SECONDS) -> None:
        """End it and what it has started: asked first, made to after ``seconds``."""
        self.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End it and what it has started, at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def last_words(self) -> str:
        """The end of what it has said since it was started."""
        with self._log.open("rb") as said:
            size = said.seek(0, os.SEEK_END)
            said.seek(max(self._begins_at, size - LAST_WORDS_BYTES))
            return said.read().decode("utf-8", "replace").strip()
