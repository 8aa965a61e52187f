"""Room for what Open vSwitch has sent and the queues have not.

Packets that wait in a port's queues are charged to the switch's one send socket. With the kernel's
default (212 992 bytes) that fills long before the queues do, and packets of every class are lost
where no counter shows it. A socket takes the default of its first moment, so it is raised before
the switch starts.

The setting is the whole machine's: a network namespace shows it (or not even that) and cannot set
it. So it is raised outside the sandbox, written in the run's journal, and set back afterwards.
"""

from pathlib import Path

from firedex_emulation.run_journal import RunJournal

__all__ = ["SEND_BUFFER_BYTES", "raise_send_buffers"]

SEND_BUFFER_BYTES = 32 * 2**20
SETTINGS = ("net.core.wmem_max", "net.core.wmem_default")


def raise_send_buffers(journal: RunJournal) -> str | None:
    """Raise the default send buffer for as long as the run lasts; why not, if it cannot be."""
    for name in SETTINGS:
        path = Path("/proc/sys") / name.replace(".", "/")
        try:
            if int(path.read_text()) > SEND_BUFFER_BYTES:
                continue
            journal.change_setting(name, str(SEND_BUFFER_BYTES))
        except (OSError, ValueError) as error:
            return (
                f"{name} could not be raised to {SEND_BUFFER_BYTES} bytes ({error}): when queues "
                "are long the switch may lose packets of every class in its send buffer"
            )
    return None
