"""The switch agent: a root command on the switch host that owns the queues of its ports.

The controller needs no root and may run on another host; it uses `AgentClient`. This package knows
Open vSwitch's database and ``tc``; it knows neither OpenFlow nor the desired network as a whole.
"""

from firedex_controller.agent.client import AgentClient
from firedex_controller.agent.tree_changes import burst_bytes
from firedex_controller.errors import (
    AgentError,
    AgentRefused,
    AgentUnreachable,
    CannotShape,
    NoSuchPort,
    QueuesNotApplied,
)

__all__ = [
    "AgentClient",
    "AgentError",
    "AgentRefused",
    "AgentUnreachable",
    "CannotShape",
    "NoSuchPort",
    "QueuesNotApplied",
    "burst_bytes",
]
