"""The controller as a process on loopback, with either framework."""

import http.client
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from firedex.wire import DesiredNetwork, to_json
from tests.support.free_ports import free_port
from tests.support.waiting import wait_until

FRAMEWORKS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(find_spec(package) is None, reason=f"{name} is not installed"),
    )
    for name, package in (("ryu", "ryu"), ("os-ken", "os_ken"))
]
STOP_SECONDS = 60.0


class ControllerProcess:
    """``firedex controller`` for some switches; it can be killed and started again."""

    def __init__(self, framework: str, folder: Path, switches: dict[str, int]) -> None:
        self.openflow = ("127.0.0.1", free_port())
        self._api = free_port()
        self._framework, self._folder, self._switches = framework, folder, switches
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        launch = "from firedex_controller.command import controller; controller()"
        command = [sys.executable, "-W", "ignore", "-c", launch, "--framework", self._framework]
        command += ["--listen", f"127.0.0.1:{self.openflow[1]}", "--api", f"127.0.0.1:{self._api}"]
        command += [
            "--state",
            str(self._folder / "controller.json"),
            "--agent",
            "http://127.0.0.1:1",
        ]
        for name, datapath in self._switches.items():
            command += ["--switch", f"{name}={datapath:016x}"]
        with (self._folder / "controller.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, "the controller answers")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None

    def log_text(self) -> str:
        return (self._folder / "controller.log").read_text()

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._api, timeout=60)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def put(self, network: DesiredNetwork) -> dict[str, Any]:
        """Set the desired network; return the changes of the first switch."""
        status, answer = self.ask("PUT", "/v1/network", to_json(network))
        assert status == 200, answer
        (first, *_) = answer["switches"]
        return dict(first)

    def topology(self) -> Any:
        return self.ask("GET", "/v1/topology")[1]

    def settled(self) -> bool:
        return all(
            switch["connected"] and switch["settled"] for switch in self.topology()["switches"]
        )

    def wait_until_settled(self) -> None:
        wait_until(self.settled, "all switches are settled")

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "/v1/health")[0] == 200
        except OSError:
            return False
