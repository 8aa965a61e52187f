"""What goes wrong between the controller, the switch agent and the switch's tools.

::

    ControllerError
    └── AgentError
        ├── AgentUnreachable   no answer from the agent, or not one of an agent
        ├── AgentRefused       the agent does not take the request: wrong token, wrong path
        ├── CannotShape        a port cannot be shaped as asked; nothing was changed
        ├── NoSuchPort         no bridge of this switch host has the port
        └── QueuesNotApplied   a command on the switch host failed; the agent goes on trying
"""

from firedex_controller.errors import ControllerError

__all__ = [
    "AgentError",
    "AgentRefused",
    "AgentUnreachable",
    "CannotShape",
    "NoSuchPort",
    "QueuesNotApplied",
]


class AgentError(ControllerError):
    """The root of what the switch agent and its client raise."""


class AgentUnreachable(AgentError):
    """The agent did not answer."""

    def __init__(self, url: str, detail: str) -> None:
        self.url, self.detail = url, detail
        super().__init__(f"the switch agent at {url} does not answer: {detail}")


class AgentRefused(AgentError):
    """The agent answered that it will not."""

    def __init__(self, url: str, detail: str) -> None:
        self.url, self.detail = url, detail
        super().__init__(f"the switch agent at {url} refused: {detail}")


class CannotShape(AgentError):
    """What was asked for is not something that a port can have."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class NoSuchPort(AgentError):
    """The port is on no bridge."""

    def __init__(self, port: str) -> None:
        self.port = port
        super().__init__(f"no bridge here has a port {port!r}")


class QueuesNotApplied(AgentError):
    """A command that sets up queues failed."""

    def __init__(self, command: str, detail: str) -> None:
        self.command, self.detail = command, detail
        super().__init__(f"{command}: {detail}")
