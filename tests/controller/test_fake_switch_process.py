"""Fake switches in their own process, with each framework."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from firedex_controller.framework import PACKAGES, ofproto, parser
from tests.support.fake_switch import RawController
from tests.support.fake_switch.openflow_wire import DATAPATH
from tests.support.free_ports import free_port

pytestmark = pytest.mark.slow

FRAMEWORKS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(package) is None,
            reason=f"{name} is not installed",
        ),
    )
    for name, package in PACKAGES.items()
]


@contextmanager
def running_process(*options: str, framework: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.fake_switch", *options]
    environment = {**os.environ, "FIREDEX_OPENFLOW": framework}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started_process:
        try:
            yield started_process
        finally:
            started_process.kill()


def read_view(port: int, view: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{view}") as response:
        return json.load(response)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_process_runs_reports_its_state_and_ends(framework: str) -> None:
    inspect_port = free_port()
    with RawController() as controller:
        options = ["--controller", "{}:{}".format(*controller.address)]
        options += ["--switch", "core=0a", "--switch", "edge=0b", "--ports", "2"]
        options += ["--link", "core:1-edge:1", "--inspect", f"127.0.0.1:{inspect_port}"]
        with running_process(*options, framework=framework) as running:
            channels = {}
            for _ in range(2):
                channel = controller.accept()
                channels[channel.features.datapath_id] = channel
            assert set(channels) == {10, 11}
            match = parser.OFPMatch(eth_type=0x0800, ipv4_dst="10.0.0.2")
            flags, bands = ofproto.OFPMF_PKTPS, [parser.OFPMeterBandDrop(5, 10)]
            channels[10].send_all(
                [
                    parser.OFPFlowMod(DATAPATH, match=match, cookie=3),
                    parser.OFPMeterMod(DATAPATH, ofproto.OFPMC_ADD, flags, 9, bands),
                ]
            )
            assert channels[10].barrier() == []
            flows = read_view(inspect_port, "flows")
            assert flows["edge"] == []
            assert flows["core"][0]["match"] == {"eth_type": 0x0800, "ipv4_dst": "10.0.0.2"}
            assert read_view(inspect_port, "meters")["core"][0]["bands"] == [
                {"rate": 5, "burst": 10}
            ]
            assert read_view(inspect_port, "connected") == {"core": True, "edge": True}
            running.send_signal(signal.SIGUSR1)
            assert running.stdout is not None
            printed = json.loads(running.stdout.readline())
            assert printed["core"]["flows"] == flows["core"]
            running.terminate()
            assert running.wait(timeout=60) == 0


def test_error_describes_the_invalid_option() -> None:
    options = ["--controller", "127.0.0.1:6653", "--switch", "core=1", "--link", "core:9-core:1"]
    with running_process(*options, framework="os-ken") as refused:
        _, output = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "port 9 of 'core'" in output
