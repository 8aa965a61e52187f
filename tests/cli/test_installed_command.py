"""The installed ``firedex`` command, run as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_site import site, write_scenario

pytestmark = pytest.mark.slow

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


def test_installed_command_checks_a_scenario(tmp_path: Path) -> None:
    completed = run(INSTALLED, "check", write_scenario(tmp_path, site()))
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.endswith("site.yaml: no problems\n")


def test_installed_command_reports_invalid_yaml_without_traceback(tmp_path: Path) -> None:
    completed = run(INSTALLED, "check", write_scenario(tmp_path, "name: [x\n"))
    assert completed.returncode == 2
    assert "not valid YAML" in completed.stdout
    assert "Traceback" not in completed.stderr


def test_environment_variable_sets_an_option(tmp_path: Path) -> None:
    file = write_scenario(tmp_path, site())
    completed = run(FROM_MODULE, "predict", file, "--json", FIREDEX_PREDICT_MODEL="independent")
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["model"] == "independent"


def test_invalid_environment_variable_exits_with_2(tmp_path: Path) -> None:
    file = write_scenario(tmp_path, site())
    completed = run(FROM_MODULE, "predict", file, FIREDEX_PREDICT_MODEL="magic")
    assert completed.returncode == 2
    assert "'magic' is not one of 'fan-out', 'independent'" in completed.stderr


def test_tables_are_plain_text_without_a_terminal() -> None:
    completed = run(FROM_MODULE, "plan", "builtin:high-rise")
    assert completed.returncode == 0, completed.stderr
    assert "\x1b[" not in completed.stdout
    assert "utility" in completed.stdout
