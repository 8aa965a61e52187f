"""How a switch says no: the type and code of an OpenFlow error message."""

from typing import Any

from firedex_controller.errors import ControllerError
from firedex_controller.framework import ofproto

__all__ = ["ONF_EXPERIMENTER", "Refusal", "bundle_refusal"]

ONF_EXPERIMENTER = 0x4F4E4600


class Refusal(ControllerError):
    """A message that the fake switch answers with an error."""

    def __init__(self, error_type: int, code: int, *, experimenter: int | None = None) -> None:
        self.error_type, self.code, self.experimenter = error_type, code, experimenter
        super().__init__(f"error type {error_type} code {code}")

    def facts(self) -> tuple[int, int]:
        """Type and code; for an experimenter's error the code is its own."""
        return (self.error_type, self.code)


def bundle_refusal(kind: int) -> Refusal:
    """An error of the bundle extension (``ONFERR_ET_…``)."""
    experimenter_type: Any = ofproto.OFPET_EXPERIMENTER
    return Refusal(experimenter_type, kind, experimenter=ONF_EXPERIMENTER)
