"""The exceptions of ``firedex_emulation``.

::

    EmulationError
    ├── RequirementsMissing      emulation needs root or a program that is not installed
    ├── UnsupportedTopology      the topology cannot carry the scenario, or a parameter is invalid
    ├── DelayVerificationError   the measured delay of a link is not the requested one
    └── PartFailed               a process of the emulated site did not start, or failed
"""

__all__ = [
    "DelayVerificationError",
    "EmulationError",
    "PartFailed",
    "RequirementsMissing",
    "UnsupportedTopology",
]


class EmulationError(Exception):
    """Base class of all errors of ``firedex_emulation``."""


class RequirementsMissing(EmulationError):
    """Emulation is not possible on this machine; the message names what is missing."""


class UnsupportedTopology(EmulationError):
    """The requested network cannot be built; the message says why."""

    def __init__(self, topology: str, reason: str) -> None:
        self.topology, self.reason = topology, reason
        super().__init__(f"topology {topology!r}: {reason}")


class DelayVerificationError(EmulationError):
    """The measured round-trip time of a link is not the requested one."""

    def __init__(self, link: str, requested_seconds: float, found: str) -> None:
        self.link, self.requested_seconds, self.found = link, requested_seconds, found
        super().__init__(
            f"link {link}: a round-trip time of {requested_seconds * 1000:g} ms was requested, "
            f"{found}; the run is stopped because its delays would be wrong"
        )


class PartFailed(EmulationError):
    """A process of the emulated site failed."""

    def __init__(self, part: str, detail: str) -> None:
        self.part, self.detail = part, detail
        super().__init__(f"{part}: {detail}")
