"""What README and docs show is run: Python blocks as they stand, and every firedex command."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for text in re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            found.append((page.name, text))
    return found


def firedex_commands() -> list[tuple[str, str]]:
    commands = []
    for page, text in blocks("console"):
        for line in text.splitlines():
            command = line.removeprefix("$ ").split("#")[0].strip()
            if command.startswith((".venv/bin/firedex ", "firedex ")):
                commands.append((page, command))
    return commands


def test_there_is_something_to_run() -> None:
    assert blocks("python")
    assert firedex_commands()


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_blocks_run(page: str, code: str) -> None:
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=False)
    assert result.returncode == 0, f"{page}: {code}"


@pytest.mark.parametrize(("page", "command"), firedex_commands())
def test_firedex_commands_run(page: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # what they write stays out of the clone
    words = shlex.split(command)[1:]
    run = [sys.executable, "-c", "from firedex.cli import main; main()", *words]
    result = subprocess.run(run, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert result.returncode == 0, f"{page}: {command}\n{result.stderr}"


def test_the_scenario_page_shows_the_example_file() -> None:
    page = (ROOT / "docs" / "scenario.md").read_text("utf-8")
    assert (ROOT / "examples" / "command-post.yaml").read_text("utf-8") in page


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([\w./-]+\.\w+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
