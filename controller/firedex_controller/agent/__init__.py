"""The switch agent: a root command on the switch host that owns the queues of ports.

The controller needs no root and may run elsewhere; it asks through ``AgentClient``.
"""

from firedex_controller.agent.client import AgentClient
from firedex_controller.agent.errors import (
    AgentError,
    AgentRefused,
    AgentUnreachable,
    CannotShape,
    NoSuchPort,
    QueuesNotApplied,
)
from firedex_controller.agent.tree_changes import burst_bytes

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
