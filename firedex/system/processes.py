"""Child processes that never outlive the process that started them.

The kernel kills a child when the thread that started it ends, even after ``kill -9`` (``setpriv
--pdeathsig``). Start children in the main thread. Each child has its own session, so Ctrl-C
reaches only the parent, which then stops its children in order.
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

__all__ = [
    "ChildProcess",
    "ProgramMissing",
    "accepts_connections",
    "find_program",
    "firedex_command",
]

STOP_SECONDS = 5.0
MAX_LOG_BYTES = 10 * 1024 * 1024
LOG_TAIL_BYTES = 2000
SYSTEM_PATHS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class ProgramMissing(Exception):
    """A required program is not installed; the message names its Debian package."""


def find_program(name: str, package: str) -> str:
    """Return the path of a program, also from directories that only root has in PATH."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATHS}")
    if path is None:
        raise ProgramMissing(f"{name} is not installed; run: apt-get install {package}")
    return path


def firedex_command(*words: str) -> list[str]:
    """Return the command line of a ``firedex`` subcommand with the current Python."""
    return [sys.executable, "-W", "ignore", "-c", "from firedex.cli import main; main()", *words]


def accepts_connections(host: str, port: int, seconds: float = 1.0) -> bool:
    """Return whether a server accepts TCP connections at an address."""
    try:
        with socket.create_connection((host, port), timeout=seconds):
            return True
    except OSError:
        return False


def _end_with_parent_prefix(parent: int) -> list[str]:
    """Return the prefix of a command that must end with its parent.

    If the parent died before the death signal was set, no signal would ever arrive. The child
    therefore checks its parent after setting it, and exits if the parent has ended.
    """
    death_signal = [find_program("setpriv", "util-linux"), "--pdeathsig", "KILL"]
    check = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'
    return [*death_signal, "/bin/sh", "-c", check, str(parent)]


class ChildProcess:
    """A running program; its output is appended to ``log``."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_name(f"{log.name}.old"))
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(  # noqa: S603  # arguments are a list, never a shell
                [*_end_with_parent_prefix(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Send SIGTERM."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop it and its children: send SIGTERM, and SIGKILL after ``seconds``."""
        self.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it and its children at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def end_of_log(self) -> str:
        """Return the end of its output since it was started."""
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - LOG_TAIL_BYTES))
            return log.read().decode("utf-8", "replace").strip()
