"""A sandbox of Linux namespaces, which leaves nothing on the machine.

An emulation runs in its own network, process and mount namespaces, with an empty ``/run``. Its
links, bridges, queues, processes and sockets exist only there. The kernel removes all of them when
the first process of the sandbox ends, for whatever reason, so no clean-up by name is needed.

The sandbox ends with the process that started it. Normally the kernel kills ``unshare`` (parent
death signal) and thereby the first process. If the parent died before that signal was set up, the
first process notices that its standard input was closed, and exits. The sandbox is a session of
its own, so Ctrl-C reaches only the process that started it.

Open vSwitch runs in the sandbox too, with its own database and sockets.
"""

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from firedex_emulation.errors import PartFailed, RequirementsMissing

__all__ = ["RUN", "check_requirements", "enter_sandbox", "run_in_sandbox", "start_open_vswitch"]

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
    """Raise RequirementsMissing with everything that is missing on this machine."""
    if os.geteuid() != 0:
        raise RequirementsMissing(
            "emulation on switches must be run as root (it creates network namespaces)"
        )
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATHS}"
    missing = {package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None}
    if missing:
        raise RequirementsMissing(
            f"Debian packages are missing; run: apt-get install {' '.join(sorted(missing))}"
        )


def run_in_sandbox(
    module: str,
    arguments: Sequence[str],
    *,
    timeout_seconds: float,
    on_start: Callable[[int], None] = lambda _: None,
    on_line: Callable[[str], None] = lambda _: None,
) -> str:
    """Run a Python module in a new sandbox and return what it printed.

    ``on_start`` is called with the id of the process that keeps the sandbox alive, ``on_line``
    with each printed line.
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
            on_start(process.pid)
            printed = _read_all(process, timeout_seconds, on_line)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        raise PartFailed(
            "sandbox", f"exit code {process.returncode}; see the messages above for the cause"
        )
    return printed


def _read_all(
    process: subprocess.Popen[str], timeout_seconds: float, on_line: Callable[[str], None]
) -> str:
    """Read everything that the process prints; call ``on_line`` for each line at once.

    Its standard input stays open; ``communicate`` would close it.
    """
    lines: list[str] = []

    def read() -> None:
        for line in process.stdout or ():
            lines.append(line)
            on_line(line.rstrip("\n"))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    parent_pipe, process.stdin = process.stdin, None
    try:
        process.wait(timeout=timeout_seconds)
        reader.join(timeout_seconds)
    except subprocess.TimeoutExpired:
        raise PartFailed("sandbox", f"timeout after {timeout_seconds:.0f} s") from None
    finally:
        if parent_pipe is not None:
            parent_pipe.close()
    return "".join(lines)


def enter_sandbox() -> None:
    """Prepare the sandbox: watch the parent, mount an empty ``/run``, set loopback up.

    The first thing that a program in a sandbox calls.
    """
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_exit_with_parent, args=(os.dup(0),), daemon=True).start()
        null_device = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null_device, 0)  # so that no child process inherits the pipe
        os.close(null_device)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    RUN.mkdir()
    temporary = RUN / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def _exit_with_parent(parent_pipe: int) -> None:
    while os.read(parent_pipe, 1):
        pass
    os._exit(1)


OVS_RUN = Path("/run/openvswitch")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")


def start_open_vswitch() -> None:
    """Start the database and the switch daemon of Open vSwitch; they end with the sandbox.

    ``/run`` belongs to the sandbox, so an Open vSwitch of the machine itself is not affected.
    """
    OVS_RUN.mkdir()
    database = OVS_RUN / "conf.db"
    socket = OVS_RUN / "db.sock"
    quiet = ["-vconsole:off", "--detach"]
    subprocess.run(["ovsdb-tool", "create", str(database), str(SCHEMA)], check=True)
    subprocess.run(
        ["ovsdb-server", str(database), f"--remote=punix:{socket}"]
        + [
            f"--pidfile={OVS_RUN}/ovsdb-server.pid",
            f"--log-file={OVS_RUN}/ovsdb-server.log",
            *quiet,
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    subprocess.run(["ovs-vsctl", "--no-wait", "init"], check=True)
    subprocess.run(
        ["ovs-vswitchd", f"unix:{socket}"]
        + [
            f"--pidfile={OVS_RUN}/ovs-vswitchd.pid",
            f"--log-file={OVS_RUN}/ovs-vswitchd.log",
            *quiet,
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
