"""Running an experiment of this folder inside a sandbox."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from firedex_emulation.sandbox import run_in_sandbox

HERE = Path(__file__).parent
SHARED = [HERE, HERE.parent / "controller", HERE.parent / "dashboard"]
MOST_SECONDS = 240.0


def experiment(name: str, *arguments: str) -> Any:
    """What the module ``experiments.NAME`` printed."""
    with pytest.MonkeyPatch.context() as patch:
        path = os.pathsep.join([*map(str, SHARED), os.environ.get("PYTHONPATH", "")])
        patch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
        printed = run_in_sandbox(f"experiments.{name}", arguments, timeout_seconds=MOST_SECONDS)
    return json.loads(printed) if printed.strip() else None
