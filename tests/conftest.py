"""What holds for all tests."""

from pathlib import Path

import pytest

KERNELS = Path(__file__).parent.parent / "firedex" / "planning"


def pytest_configure(config: pytest.Config) -> None:
    """Forget compiled functions that are older than any source they may have been inlined from.

    Numba looks only at the file that a function is in, not at those that it calls.
    """
    if hasattr(config, "workerinput"):
        return
    newest = max(source.stat().st_mtime for source in KERNELS.glob("*.py"))
    for compiled in (KERNELS / "__pycache__").glob("*.nb[ic]"):
        if compiled.stat().st_mtime < newest:
            compiled.unlink(missing_ok=True)
