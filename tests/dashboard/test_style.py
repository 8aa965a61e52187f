"""Colours that can be read, light and dark: 4.5 to 1 (WCAG 2.1, level AA); edges 3 to 1."""

import re
from pathlib import Path

import pytest

import firedex.dashboard

SHEET = (Path(firedex.dashboard.__file__).parent / "assets" / "dashboard.css").read_text("utf-8")
PAIRS = [
    (text, ground)
    for ground, texts in {
        "card": ("ink", "soft", "accent", "good", "warn", "bad"),
        "ground": ("ink", "soft"),
        "accent": ("on-accent",),
        "bad-ground": ("ink", "bad"),
        "warn-ground": ("ink",),
        "good-ground": ("good",),
    }.items()
    for text in texts
]


SCHEMES = [":root {", ':root[data-theme="dark"] {']


def colours(selector: str) -> dict[str, str]:
    block = SHEET[SHEET.index(selector) :].split("{", 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(selector: str, one: str, other: str) -> float:
    known = colours(selector)
    darker, lighter = sorted((luminance(known[one]), luminance(known[other])))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("selector", SCHEMES)
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_contrast(selector: str, text: str, ground: str) -> None:
    assert contrast(selector, text, ground) >= 4.5, (text, ground)


@pytest.mark.parametrize("selector", SCHEMES)
@pytest.mark.parametrize("ground", ["card", "ground"])
def test_edges_of_controls(selector: str, ground: str) -> None:
    assert contrast(selector, "edge", ground) >= 3
    for control in ("button {", ".card .dash-input-container {", '.card input[type="text"],'):
        rule = SHEET[SHEET.index(control) :].split("{", 1)[1].split("}", 1)[0]
        assert "var(--edge)" in rule, control


def test_dark_before_scripts_run_is_the_same_dark() -> None:
    chosen, wished = (colours(each) for each in (SCHEMES[1], ":root:not([data-theme]) {"))
    assert chosen == wished
    asked = SHEET.index("@media (prefers-color-scheme: dark)")
    assert SHEET[asked:].split("{", 2)[1].strip().endswith(":root:not([data-theme])")
