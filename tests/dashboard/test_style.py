"""Contrast of colours, light and dark: text 4.5 to 1 (WCAG 2.1, level AA), edges 3 to 1."""

import re
from pathlib import Path

import pytest

import firedex.dashboard

STYLE_SHEET = (Path(firedex.dashboard.__file__).parent / "assets" / "dashboard.css").read_text(
    "utf-8"
)
PAIRS = [
    (text, background)
    for background, texts in {
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
    block = STYLE_SHEET[STYLE_SHEET.index(selector) :].split("{", 1)[1].split("}", 1)[0]
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
@pytest.mark.parametrize(("text", "background"), PAIRS)
def test_text_contrast_is_at_least_4_5(selector: str, text: str, background: str) -> None:
    assert contrast(selector, text, background) >= 4.5, (text, background)


@pytest.mark.parametrize("selector", SCHEMES)
@pytest.mark.parametrize("background", ["card", "ground"])
def test_control_edge_contrast_is_at_least_3(selector: str, background: str) -> None:
    assert contrast(selector, "edge", background) >= 3
    for control in ("button {", ".card .dash-input-container {", '.card input[type="text"],'):
        rule = STYLE_SHEET[STYLE_SHEET.index(control) :].split("{", 1)[1].split("}", 1)[0]
        assert "var(--edge)" in rule, control


def test_dark_colours_are_the_same_before_scripts_run() -> None:
    chosen, by_system = (colours(each) for each in (SCHEMES[1], ":root:not([data-theme]) {"))
    assert chosen == by_system
    media_query = STYLE_SHEET.index("@media (prefers-color-scheme: dark)")
    assert STYLE_SHEET[media_query:].split("{", 2)[1].strip().endswith(":root:not([data-theme])")
