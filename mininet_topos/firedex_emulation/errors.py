"""The exceptions of ``firedex_emulation``.

::

    EmulationError
    ├── CannotEmulate      what emulation needs is not here (root, a tool)
    ├── TopologyRefused    a topology cannot carry this scenario, or a parameter makes no sense
    ├── DelayNotReal       a link was asked to have a delay, and measured to have another
    └── PartFailed         a part of the emulated site did not come up, or died
"""

__all__ = ["CannotEmulate", "DelayNotReal", "EmulationError", "PartFailed", "TopologyRefused"]


class EmulationError(Exception):
    """The root of what ``firedex_emulation`` raises."""


class CannotEmulate(EmulationError):
    """Something that emulation needs is missing; the message names it."""


class TopologyRefused(EmulationError):
    """What was asked of a topology cannot be built as asked; the message says why."""

    def __init__(self, topology: str, reason: str) -> None:
        self.topology, self.reason = topology, reason
        super().__init__(f"topology {topology!r}: {reason}")


class DelayNotReal(EmulationError):
    """A link's round trip is not what was asked for."""

    def __init__(self, link: str, asked_seconds: float, found: str) -> None:
        self.link, self.asked_seconds, self.found = link, asked_seconds, found
        super().__init__(
            f"link {link}: a round trip of {asked_seconds * 1000:g} ms was asked for, {found}; "
            "a delay that is not real is refused, not reported"
        )


class PartFailed(EmulationError):
    """A part of the emulated site failed."""

    def __init__(self, part: str, detail: str) -> None:
        self.part, self.detail = part, detail
        super().__init__(f"{part}: {detail}")
