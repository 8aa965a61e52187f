"""Check the wording of the project; ``make check`` runs it.

Usage: .venv/bin/python scripts/check_prose.py

Three checks:

1. proselint reads help texts, the OpenAPI document, error messages, dashboard texts and the
   documentation, without code. ``.proselintrc.json`` selects its checks.
2. No sentence of these texts has more than 40 words between two punctuation marks.
3. No tracked text file contains an entry of ``scripts/banned_phrases.txt``.

Each finding is one line: where it is, and what is wrong. The exit code is 1 if there are findings.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import draw_texts

ROOT = Path(__file__).resolve().parent.parent
BANNED_PHRASES = ROOT / "scripts" / "banned_phrases.txt"
NOT_CHECKED = {"LICENSE", BANNED_PHRASES.relative_to(ROOT).as_posix()}
GROUPS = ("help", "api", "errors", "alerts", "docs")
LONGEST_SENTENCE_WORDS = 40


def prose(text: str) -> str:
    """Return a text as words only: code and thousands separators are removed."""
    text = re.sub(r"`[^`]*`", "…", text)
    text = re.sub(r"\$?\{[^{}]*\}", "…", text)  # a value that is filled in
    return re.sub(r"(?<=\d) (?=\d{3}\b)", "", text)


@cache
def proselint() -> Callable[[str, str], list[Any]]:
    """Return a function that lints a text; imported late, because tests do without it."""
    from proselint.checks import __register__
    from proselint.config import load_from
    from proselint.registry import CheckRegistry
    from proselint.tools import LintFile

    CheckRegistry().register_many(__register__)
    settings = load_from(ROOT / ".proselintrc.json")
    return lambda place, text: LintFile(place, text).lint(settings)


def proselint_findings(place: str, text: str) -> Iterator[str]:
    """Yield what proselint finds in a text."""
    for found in proselint()(place, prose(text)):
        message = " ".join(found.check_result.message.split())
        yield f"{place}: {message} ({found.check_result.check_path})"


def long_sentences(place: str, text: str) -> Iterator[str]:
    """Yield the sentences of a text that are too long to be understood on first reading."""
    for sentence in re.split(r"(?<=[.!?:;])\s|\|", prose(text)):
        words = sentence.split()
        if len(words) > LONGEST_SENTENCE_WORDS:
            yield f"{place}: a sentence of {len(words)} words: {' '.join(words[:8])} …"


@cache
def banned_phrases() -> list[tuple[re.Pattern[str], str]]:
    """Return the pattern of each banned phrase, and the advice what to write instead."""
    lines = [line.strip() for line in BANNED_PHRASES.read_text("utf-8").splitlines()]
    entries = [line.split(" => ") for line in lines if line and not line.startswith("#")]
    return [(phrase_pattern(phrase), advice) for phrase, advice in entries]


def phrase_pattern(phrase: str) -> re.Pattern[str]:
    """Return the pattern that finds a banned phrase; the list explains the notation."""
    words = r"\s+".join(re.escape(word) for word in phrase.split()).replace(r"\*", r"\w*")
    before = r"(?<![A-Za-z0-9])" if phrase[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if phrase[-1].isalnum() else ""
    flags = re.IGNORECASE if phrase == phrase.lower() else re.NOFLAG
    return re.compile(before + words + after, flags)


def banned_findings(place: str, text: str) -> Iterator[str]:
    """Yield the banned phrases in a text, each with its line."""
    for pattern, advice in banned_phrases():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{place}:{line}: '{' '.join(match[0].split())}'; instead: {advice}"


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Yield the path and the content of every tracked text file."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if name in NOT_CHECKED or not path.is_file():
            continue
        try:
            yield name, path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # a picture


def findings() -> Iterator[str]:
    """Yield all findings."""
    for group in GROUPS:
        for place, text in sorted(set(draw_texts.GROUPS[group]())):
            yield from proselint_findings(place, text)
            yield from long_sentences(place, text)
    for place, text in tracked_texts():
        yield from banned_findings(place, text)


def main() -> None:
    """Print all findings, and exit with 1 if there are any."""
    found = list(findings())
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} findings in the wording", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
