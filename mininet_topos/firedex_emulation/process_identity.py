"""Which process a number meant: numbers are given out again, but not with their start times."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessIdentity", "boot_id"]

STATE, START_TIME = 0, 19
"""Fields of ``/proc/PID/stat`` after the command's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process of this boot."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """The process that has this number now; None if there is none (or only its remains)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        if fields[STATE] in "ZX":
            return None
        return cls(pid=pid, started_ticks=int(fields[START_TIME]))

    @classmethod
    def of_this_process(cls) -> "ProcessIdentity":
        """The one that runs this."""
        found = cls.of(os.getpid())
        if found is None:
            raise OSError("/proc does not show this process")
        return found

    def is_alive(self) -> bool:
        """Whether that very process still runs."""
        return ProcessIdentity.of(self.pid) == self


def boot_id() -> str:
    """Differs after every start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
