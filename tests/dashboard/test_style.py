"""Colours that can be read, light and dark: at least 4.5 to 1 (WCAG 2.1, level AA)."""

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
    }.items()
    for text in texts
]


def colours(selector: str) -> dict[str, str]:
    block = SHEET[SHEET.index(selector) :].split("{", 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("selector", [":root {", ':root[data-theme="dark"] {'])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_contrast(selector: str, text: str, ground: str) -> None:
    known = colours(selector)
    lighter, darker = sorted((luminance(known[text]), luminance(known[ground])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)
