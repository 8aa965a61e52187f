"""The commands of the guide to certificates are run in order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from firedex.certificates.site_credentials import read_credentials

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "certificates.md"


def test_commands_of_the_guide_work_in_order(tmp_path: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    program = tmp_path / "bin" / "firedex"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom firedex.cli import main\nmain()\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["timeout", "300", "bash", "-c", "\n".join(["set -e -o pipefail", *blocks])],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=330,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-3000:]
    port = read_credentials(tmp_path / "port-authority", "port")
    fire = read_credentials(tmp_path / "fire-department", "fire")
    assert len(port.trust_anchors) == len(fire.trust_anchors) == 2
    assert len((tmp_path / "fire-department" / "revoked.txt").read_text().splitlines()) == 1
    assert "firedex://127.0.0.1:7447/port/" in done.stdout
