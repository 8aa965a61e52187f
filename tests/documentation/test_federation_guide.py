"""The commands of the guide "Join two sites in ten minutes" are run in order."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.free_ports import free_port

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "join-two-sites.md"
PORTS = ("1883", "1884", "1885", "7447", "7448", "7449")


def test_commands_of_the_guide_work_in_order(tmp_path: Path) -> None:
    path = f"{os.environ['PATH']}:/usr/sbin"
    if shutil.which("mosquitto", path=path) is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    text = PAGE.read_text("utf-8")
    for port in PORTS:
        text = text.replace(port, str(free_port()))
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 10
    program = tmp_path / "bin" / "firedex"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom firedex.cli import main\nmain()\n")
    program.chmod(0o755)
    try:
        done = subprocess.run(
            ["timeout", "240", "bash", "-c", "\n".join(["set -e -o pipefail", *blocks])],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{program.parent}:{path}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=270,
        )
    finally:
        for number in (tmp_path / "processes").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "smoke in hall 3" in done.stdout
    assert "port: broker connected; reaches fire" in done.stdout
    assert "smoke at the fire department" in done.stdout
