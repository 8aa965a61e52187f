"""The OpenFlow controller and, in ``agent``, the switch agent.

This package owns everything that speaks OpenFlow, Open vSwitch's database or ``tc``: rules,
topology, statistics and queues. It knows the other parts of a site only by ``firedex.wire``; it
must not know scenarios, models or plans.
"""

from firedex_controller.errors import ControllerError, SwitchNotConnected, SwitchRefused

__all__ = ["ControllerError", "SwitchNotConnected", "SwitchRefused"]
