"""What holds for all tests."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KERNELS = (ROOT / "firedex" / "planning", ROOT / "models" / "firedex_models" / "simulation")


def pytest_configure(config: pytest.Config) -> None:
    """Forget compiled functions that are older than any source they may have been inlined from.

    Numba looks only at the file that a function is in, not at those that it calls.
    """
    if hasattr(config, "workerinput"):
        return
    for folder in KERNELS:
        newest = max(source.stat().st_mtime for source in folder.glob("*.py"))
        for compiled in (folder / "__pycache__").glob("*.nb[ic]"):
            if compiled.stat().st_mtime < newest:
                compiled.unlink(missing_ok=True)
