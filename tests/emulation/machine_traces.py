"""What an emulation could leave behind on the machine, for comparing before and after."""

import os
import subprocess
import tempfile
from pathlib import Path

OURS = ("ovs-vswitchd", "ovsdb-server", "mosquitto", "firedex", "mnexec", "unshare")


def traces() -> dict[str, set[str]]:
    """Links, namespaces, processes of our kinds, files in the places where parts could write."""
    return {
        "links": _links(),
        "network namespaces": _namespaces(),
        "processes": _processes(),
        "files": {
            str(path)
            for folder in (tempfile.gettempdir(), "/run", "/var/run/openvswitch", "/run/netns")
            if Path(folder).is_dir()
            for path in Path(folder).iterdir()
        },
    }


def left_behind(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is there now that was not there before."""
    after = traces()
    return {what: after[what] - before[what] for what in before if after[what] - before[what]}


def _links() -> set[str]:
    shown = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    return {line.split(":")[1].strip() for line in shown.stdout.splitlines()}


def _namespaces() -> set[str]:
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found.add(str((process / "ns" / "net").readlink()))
            except OSError:  # it has ended, or it is not ours to read
                continue
    return found


def _processes() -> set[str]:
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            command = " ".join(word.decode(errors="replace") for word in words)
            if any(name in command for name in OURS) and "pytest" not in command:
                found.add(f"{process.name} {command}")
    return found
