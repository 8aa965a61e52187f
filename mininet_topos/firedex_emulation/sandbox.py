"""A place in the machine where nothing can be left behind.

An emulation runs in network, process and mount namespaces of its own, with an empty ``/run``. Its
links, bridges, queues, processes and sockets exist only there: when the first process ends, however
it ends, the kernel takes all of it away. Nothing is cleaned up by name, because nothing is outside.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
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


def run_in_sandbox(module: str, arguments: Sequence[str], *, timeout_seconds: float) -> str:
    """Run a Python module in a new sandbox; return what it printed.

    The sandbox dies with this process: when it goes the kernel ends ``unshare``, with that the
    sandbox's first process, and with that all of it.
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
        command, stdout=subprocess.PIPE, text=True, env=environment, stdin=subprocess.DEVNULL
    ) as process:
        try:
            printed, _ = process.communicate(timeout=timeout_seconds)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        raise CannotEmulate(f"the emulation ended with code {process.returncode}; see above")
    return printed


def settle_in() -> None:
    """First thing inside: an empty ``/run``, and a loopback that is up."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    RUN.mkdir()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
