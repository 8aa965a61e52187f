"""The exceptions of ``firedex_emulation``.

::

    EmulationError
    ├── CannotEmulate    what emulation needs is not here (root, a tool)
    └── PartFailed       a part of the emulated site did not come up, or died
"""

__all__ = ["CannotEmulate", "EmulationError", "PartFailed"]


class EmulationError(Exception):
    """The root of what ``firedex_emulation`` raises."""


class CannotEmulate(EmulationError):
    """Something that emulation needs is missing; the message names it."""


class PartFailed(EmulationError):
    """A part of the emulated site failed."""

    def __init__(self, part: str, detail: str) -> None:
        self.part, self.detail = part, detail
        super().__init__(f"{part}: {detail}")
