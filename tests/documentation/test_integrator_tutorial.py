"""The integrator's tutorial, run from beginning to end; every answer it shows is compared."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "integrator-tutorial.md"
MARK = "@@ block"


def steps() -> list[tuple[str, Any]]:
    """Each block of commands with the JSON that is shown after it, if any."""
    text = PAGE.read_text("utf-8")
    found = re.findall(r"```bash\n(.*?)```(?:\n\n```json\n(.*?)```)?", text, re.DOTALL)
    return [(commands, json.loads(shown) if shown else None) for commands, shown in found]


def includes(got: Any, shown: Any) -> bool:
    """Whether all that is shown is there; what is not shown may be anything."""
    if isinstance(shown, dict):
        return isinstance(got, dict) and all(
            key in got and includes(got[key], value) for key, value in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(got, list) and all(
            any(includes(each, value) for each in got) for value in shown
        )
    return bool(got == shown)


def test_the_tutorial_works_as_it_stands(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed (apt-get install curl)")
    port = free_port()
    program = tmp_path / "bin" / "firedex"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nfrom importlib import import_module\nimport sys\n"
        "names = {'serve': 'command:serve', 'tokens': 'tokens_command:tokens'}\n"
        "name = sys.argv[1] if len(sys.argv) > 1 else ''\n"
        "where = names.get(name, 'people_commands:' + name.replace('-', '_'))\n"
        "module, command = where.split(':')\n"
        "if __name__ == '__main__':\n"  # the planner's process imports this file too
        "    getattr(import_module('firedex.service.' + module), command)(sys.argv[2:])\n"
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


def test_the_comparison_can_fail() -> None:
    assert includes({"a": 1, "b": [{"c": 2, "d": 3}]}, {"b": [{"c": 2}]})
    assert not includes({"a": 1}, {"a": 2})
    assert not includes([{"a": 1}], [{"a": 1}, {"a": 2}])
    assert len([shown for _, shown in steps() if shown is not None]) >= 10
