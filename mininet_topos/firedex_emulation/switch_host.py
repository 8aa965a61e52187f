"""Open vSwitch's daemons, in user space, for one emulation only."""

import subprocess
from pathlib import Path

__all__ = ["start_open_vswitch"]

RUN = Path("/run/openvswitch")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")


def start_open_vswitch() -> None:
    """Start the database and the switch; they end with the sandbox.

    ``/run`` is the sandbox's own, so the machine's Open vSwitch, if there is one, is out of reach.
    """
    RUN.mkdir()
    database = RUN / "conf.db"
    socket = RUN / "db.sock"
    quiet = ["-vconsole:off", "--detach"]
    subprocess.run(["ovsdb-tool", "create", str(database), str(SCHEMA)], check=True)
    subprocess.run(
        ["ovsdb-server", str(database), f"--remote=punix:{socket}"]
        + [f"--pidfile={RUN}/ovsdb-server.pid", f"--log-file={RUN}/ovsdb-server.log", *quiet],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    subprocess.run(["ovs-vsctl", "--no-wait", "init"], check=True)
    subprocess.run(
        ["ovs-vswitchd", f"unix:{socket}"]
        + [f"--pidfile={RUN}/ovs-vswitchd.pid", f"--log-file={RUN}/ovs-vswitchd.log", *quiet],
        check=True,
        stderr=subprocess.DEVNULL,
    )
