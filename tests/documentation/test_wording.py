"""The check of wording finds what it should, and no tracked file has a banned phrase."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check() -> dict[str, Any]:
    """Return the functions of ``scripts/check_prose.py``."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return runpy.run_path(str(ROOT / "scripts" / "check_prose.py"))
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def test_no_tracked_file_has_a_banned_phrase(check: dict[str, Any]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a clone of the repository, so no file is tracked")
    files = dict(check["tracked_texts"]())
    assert {"README.md", "docs/glossary.md", "firedex/cli/__init__.py"} <= files.keys()
    found = [line for name, text in files.items() for line in check["banned_findings"](name, text)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "retry, " + "or come" + "\nagain later",  # over the end of a line
        "class " + "Not" + "Yours(Exception):",
        "self._take" + "_over(switch)",
        "Say good" + "bye.",
        "def test_nothing_is_no" + "_obstacle() -> None:",
        '@option(help="Of' + ' the service.")',
    ],
)
def test_banned_phrase_is_found(check: dict[str, Any], text: str) -> None:
    assert len(list(check["banned_findings"]("file.py", text))) == 1


@pytest.mark.parametrize(
    "text", ["The state of the service.", "A switch takes over.", "class UnknownTopic:"]
)
def test_ordinary_words_are_accepted(check: dict[str, Any], text: str) -> None:
    assert list(check["banned_findings"]("file.py", text)) == []


def test_long_sentence_is_found(check: dict[str, Any]) -> None:
    sentence = "word " * 41
    assert len(list(check["long_sentences"]("page.md", sentence + "."))) == 1
    assert (
        list(check["long_sentences"]("page.md", sentence[: 5 * 20] + ". " + sentence[: 5 * 20]))
        == []
    )


def test_code_is_not_prose(check: dict[str, Any]) -> None:
    assert (
        check["prose"]("Use `--listen HOST PORT` for 100 000 flows.") == "Use … for 100000 flows."
    )
