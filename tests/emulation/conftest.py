"""Emulation needs root and the Debian packages; without them its tests say so and are skipped."""

import pytest

from firedex_emulation.errors import CannotEmulate
from firedex_emulation.sandbox import check_requirements


@pytest.fixture(autouse=True, scope="session")
def _can_emulate() -> None:
    try:
        check_requirements()
    except CannotEmulate as reason:
        pytest.skip(str(reason))
