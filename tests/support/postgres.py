"""A private PostgreSQL server: in a temporary folder, on a Unix socket, not as root."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM_FOLDERS = ":".join(
    sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
)
OPTIONS = "-c listen_addresses='' -c fsync=off -c max_connections=100 -c shared_buffers=32MB"


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{PROGRAM_FOLDERS}:{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"{name} is not installed (apt-get install postgresql)")
    return found


def _unprivileged_user() -> dict[str, Any]:
    """Return options that run a process without root, because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("running as root, and there is no user 'postgres' or 'nobody'")


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """Run a server; yield the URL of its default database."""
    initdb, control = _program("initdb"), _program("pg_ctl")
    user = _unprivileged_user()
    if user:
        os.chown(folder, user["user"], user["group"])
    for parent in folder.parents[:3]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/tmp"):  # noqa: S108
            parent.chmod(0o755)
    data = folder / "data"
    run: dict[str, Any] = {"check": True, "capture_output": True, "cwd": folder, **user}
    subprocess.run(
        [initdb, "-D", str(data), "-U", "firedex", "-A", "trust", "--no-sync", "-E", "UTF8"], **run
    )
    log = str(folder / "log")
    options = f"{OPTIONS} -c unix_socket_directories='{folder}'"
    subprocess.run(
        [control, "-D", str(data), "-o", options, "-l", log, "-w", "start"],
        **{**run, "capture_output": False, "stdout": subprocess.DEVNULL},
    )
    try:
        yield f"postgresql://firedex@/postgres?host={folder}"
    finally:
        subprocess.run([control, "-D", str(data), "-m", "immediate", "-w", "stop"], **run)
