"""The command as it is installed, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from small_site import site, write

FROM_MODULE = [sys.executable, "-c", "from firedex.cli import main; main()"]
INSTALLED = [str(Path(sys.executable).parent / "firedex")]


def run(command: list[str], *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **env},
    )


def test_the_installed_command_checks_a_scenario(tmp_path: Path) -> None:
    ran = run(INSTALLED, "check", write(tmp_path, site()))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("site.yaml: no problems\n")


def test_the_installed_command_exits_with_2_and_no_traceback(tmp_path: Path) -> None:
    ran = run(INSTALLED, "check", write(tmp_path, "name: [x\n"))
    assert ran.returncode == 2
    assert "not valid YAML" in ran.stdout
    assert "Traceback" not in ran.stderr


def test_the_environment_reaches_the_command(tmp_path: Path) -> None:
    file = write(tmp_path, site())
    ran = run(FROM_MODULE, "predict", file, "--json", FIREDEX_PREDICT_MODEL="independent")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["model"] == "independent"


def test_the_environment_is_checked_like_an_option(tmp_path: Path) -> None:
    file = write(tmp_path, site())
    ran = run(FROM_MODULE, "predict", file, FIREDEX_PREDICT_MODEL="magic")
    assert ran.returncode == 2
    assert "'magic' is not one of 'fan-out', 'independent'" in ran.stderr


def test_tables_are_plain_text_where_there_is_no_terminal() -> None:
    ran = run(FROM_MODULE, "plan", "builtin:high-rise")
    assert ran.returncode == 0, ran.stderr
    assert "\x1b[" not in ran.stdout
    assert "utility" in ran.stdout
