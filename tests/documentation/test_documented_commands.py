"""The Python code and the firedex commands in README and docs run without errors."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the code blocks of a language in all pages, each with the name of its page."""
    found = []
    for page in PAGES:
        for text in re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            found.append((page.name, text))
    return found


def firedex_commands() -> dict[str, str]:
    """Return the different firedex commands in all console blocks, each with a page that has it."""
    commands: dict[str, str] = {}
    for page, text in blocks("console"):
        for line in text.splitlines():
            command = line.removeprefix("$ ").split("#")[0].strip().removeprefix(".venv/bin/")
            if command.startswith("firedex "):
                commands.setdefault(command, page)
    return commands


def command_parameters() -> list[Any]:
    """Return the commands as test parameters; all simulations but one are long tests."""
    first_simulation = next(each for each in firedex_commands() if "firedex simulate" in each)
    return [
        pytest.param(
            page,
            command,
            marks=pytest.mark.long
            if "firedex simulate" in command and command != first_simulation
            else (),
        )
        for command, page in firedex_commands().items()
    ]


def test_pages_have_code_and_commands() -> None:
    assert blocks("python")
    assert firedex_commands()


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_blocks_run(page: str, code: str) -> None:
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=False)
    assert result.returncode == 0, f"{page}: {code}"


@pytest.mark.parametrize(("page", "command"), command_parameters())
def test_firedex_commands_run(page: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(
        ROOT / "examples"
    )  # commands write into tmp_path, not into the clone
    words = shlex.split(command)[1:]
    run = [sys.executable, "-c", "from firedex.cli import main; main()", *words]
    result = subprocess.run(run, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert result.returncode == 0, f"{page}: {command}\n{result.stderr}"


def test_scenario_page_contains_example_file() -> None:
    page = (ROOT / "docs" / "reference" / "scenario-file.md").read_text("utf-8")
    assert (ROOT / "examples" / "command-post.yaml").read_text("utf-8") in page


def test_links_between_pages_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([\w./-]+\.\w+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_named_in_pages_exist() -> None:
    names = r"`((?:tests|scripts|deploy|examples|docs)/[\w./-]+)`"
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in re.findall(names, page.read_text("utf-8"))
        if not name.startswith("tests/x/") and not (ROOT / name).exists()  # tests/x: a placeholder
    ]
    assert missing == []
