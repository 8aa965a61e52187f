"""The generated reference pages are up to date."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "function"), [("command-line.md", "command_line_page"), ("api.md", "api_page")]
)
def test_reference_page_is_up_to_date(page: str, function: str) -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "write_reference.py"))[function]()
    written = (ROOT / "docs" / "reference" / page).read_text("utf-8")
    assert written == made, "run: .venv/bin/python scripts/write_reference.py"
