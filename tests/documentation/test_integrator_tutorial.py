"""The tutorial for integrators runs completely, and its responses are those that it shows."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.free_ports import free_port

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "integrate.md"
MARK = "@@ block"


def steps() -> list[tuple[str, Any]]:
    """Return each block of commands, with the JSON that the page shows after it, if any."""
    text = PAGE.read_text("utf-8")
    found = re.findall(r"```bash\n(.*?)```(?:\n\n```json\n(.*?)```)?", text, re.DOTALL)
    return [(commands, json.loads(shown) if shown else None) for commands, shown in found]


def includes(got: Any, shown: Any) -> bool:
    """Return whether a response has all values that the page shows; it may have more."""
    if isinstance(shown, dict):
        return isinstance(got, dict) and all(
            key in got and includes(got[key], value) for key, value in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(got, list) and all(
            any(includes(each, value) for each in got) for value in shown
        )
    return bool(got == shown)


def test_tutorial_runs_and_responses_match(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed (apt-get install curl)")
    port = free_port()
    program = tmp_path / "bin" / "firedex"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "from firedex.cli import main\n"
        "if __name__ == '__main__':\n"  # the process of the planner also imports this file
        "    main()\n"
    )
    program.chmod(0o755)
    script = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for commands, _ in steps():
        script += [f"echo '{MARK}'", commands]
    text = "\n".join(script).replace("8088", str(port))
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["timeout", "150", "bash", "-c", text],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    answers = done.stdout.split(f"{MARK}\n")[1:]
    assert len(answers) == len(steps())
    for (commands, shown), answer in zip(steps(), answers, strict=True):
        if shown is not None:
            assert includes(json.loads(answer), shown), f"{commands}\n{answer[:3000]}"


def test_comparison_detects_differences() -> None:
    assert includes({"a": 1, "b": [{"c": 2, "d": 3}]}, {"b": [{"c": 2}]})
    assert not includes({"a": 1}, {"a": 2})
    assert not includes([{"a": 1}], [{"a": 1}, {"a": 2}])
    assert len([shown for _, shown in steps() if shown is not None]) >= 10
