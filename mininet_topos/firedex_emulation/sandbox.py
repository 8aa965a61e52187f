"""A place in the machine where nothing can be left behind.

An emulation runs in network, process and mount namespaces of its own, with an empty ``/run``. Its
links, bridges, queues, processes and sockets exist only there: when the first process ends, however
it ends, the kernel takes all of it away. Nothing is cleaned up by name, because nothing is outside.

It ends with the process that started it, in two ways: the kernel ends ``unshare``, with that the
sandbox's first process, and with that all of it; and the first process ends by itself when its
lifeline (standard input) does, should the one have died before the other was told of it. It is a
session of its own, so that Ctrl-C reaches only who started it.
"""

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from firedex_emulation.errors import CannotEmulate

__all__ = ["RUN", "check_requirements", "run_in_sandbox", "settle_in"]

RUN = Path("/run/firedex")
TOOLS = {
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "mosquitto": "mosquitto",
    "mnexec": "mininet",
}
SYSTEM_PATHS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def check_requirements() -> None:
    """Raise CannotEmulate naming everything that is missing."""
    if os.geteuid() != 0:
        raise CannotEmulate("emulation needs root, for network namespaces and switches")
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATHS}"
    missing = {package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None}
    if missing:
        raise CannotEmulate(f"not installed: {', '.join(sorted(missing))} (apt-get install them)")


def run_in_sandbox(
    module: str,
    arguments: Sequence[str],
    *,
    timeout_seconds: float,
    started: Callable[[int], None] = lambda _: None,
    heard: Callable[[str], None] = lambda _: None,
) -> str:
    """Run a Python module in a new sandbox; return what it printed.

    ``started`` is told the process number of what keeps the sandbox alive, ``heard`` each line
    that is printed.
    """
    check_requirements()
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    command += [sys.executable, "-W", "ignore", "-m", module, *arguments]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:{SYSTEM_PATHS}",
    }
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            started(process.pid)
            printed = _read_all(process, timeout_seconds, heard)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        raise CannotEmulate(f"the emulation ended with code {process.returncode}; see above")
    return printed


def _read_all(
    process: subprocess.Popen[str], timeout_seconds: float, heard: Callable[[str], None]
) -> str:
    """What the process prints, each line told to ``heard`` as it comes.

    Its standard input stays open: ``communicate`` would close it.
    """
    lines: list[str] = []

    def read() -> None:
        for line in process.stdout or ():
            lines.append(line)
            heard(line.rstrip("\n"))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    lifeline, process.stdin = process.stdin, None
    try:
        process.wait(timeout=timeout_seconds)
        reader.join(timeout_seconds)
    except subprocess.TimeoutExpired:
        raise CannotEmulate(f"the emulation was not done after {timeout_seconds:.0f} s") from None
    finally:
        if lifeline is not None:
            lifeline.close()
    return "".join(lines)


def settle_in() -> None:
    """First thing inside: hold on to the lifeline; an empty ``/run``; a loopback that is up."""
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_end_with_lifeline, args=(os.dup(0),), daemon=True).start()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # so that nobody else inherits the lifeline
        os.close(nothing)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    RUN.mkdir()
    temporary = RUN / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def _end_with_lifeline(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os._exit(1)
