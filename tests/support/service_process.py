"""``firedex serve`` as a process that can be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.service_site import Client

PROGRAM = "from firedex.service.commands.serve import serve; serve()"
TIMEOUT_SECONDS = 180.0
SITE = """\
name: killed
transport: tcp
topics: []
network:
  switches:
    - {id: lan, managed: false, bandwidth_bits_per_second: 1000000000}
    - {id: core, managed: true, bandwidth_bits_per_second: 5000000}
  broker: {id: edge}
planning: {flows_per_subscriber: 3, priorities: 3}
"""


class ServiceProcess:
    """The process and its URL."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str) -> None:
        self.process, self.url = process, url

    def kill(self) -> None:
        """Send SIGKILL, like a power failure."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(TIMEOUT_SECONDS)

    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task")
        return [
            int(child)
            for task in tasks.iterdir()
            for child in (task / "children").read_text().split()
        ]


def await_ready(client: Client, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while True:
        assert process.poll() is None, f"the service ended with {process.returncode}"
        assert time.monotonic() < until, "the service is not ready"
        try:
            if client.get("/v1/health").status == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)


@contextmanager
def service_process(
    folder: Path, port: int, *arguments: str, state: str | None = None
) -> Iterator[ServiceProcess]:
    site = folder / "site.yaml"
    site.write_text(SITE)
    command = [sys.executable, "-c", PROGRAM, str(site), "--listen", f"127.0.0.1:{port}"]
    command += ["--state", state or str(folder / "state.sqlite"), *arguments]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log, env={**os.environ})
    try:
        url = f"http://127.0.0.1:{port}"
        await_ready(Client(url), process)
        yield ServiceProcess(process, url)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(TIMEOUT_SECONDS)
