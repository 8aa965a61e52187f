"""OpenFlow: pure rule compilation and a thin controller app. Knows only ``firedex.wire``."""

from firedex_controller.errors import ControllerError, SwitchNotConnected, SwitchRefused

__all__ = ["ControllerError", "SwitchNotConnected", "SwitchRefused"]
