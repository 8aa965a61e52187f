"""The exceptions of ``firedex_controller``.

::

    ControllerError
    ├── FrameworkMissing      the chosen OpenFlow framework, or any, is not installed
    ├── ControllerBusy        a request waited too long and was not carried out
    ├── SwitchNotConnected    the switch has no control channel at the moment
    ├── SwitchRefused         the switch answered a message with an OpenFlow error
    │   └── SwitchTimeout     the switch did not answer in time
    ├── InvalidNetwork        the desired network contradicts itself
    ├── StateNotSaved         the state file cannot be written
    ├── UnknownSwitch         the controller was not started with this switch
    ├── UnknownPort           a port for which queues are requested has not been discovered
    └── AgentError
        ├── AgentUnreachable   the agent sent no response, or an unexpected one
        ├── AgentRefused       the agent rejected the request: wrong token, wrong path
        ├── CannotShape        a port cannot have these queues; nothing was changed
        ├── NoSuchPort         no bridge of this switch host has the port
        └── QueuesNotApplied   a command on the switch host failed; the agent retries
"""

from collections.abc import Iterable

__all__ = [
    "AgentError",
    "AgentRefused",
    "AgentUnreachable",
    "CannotShape",
    "ControllerBusy",
    "ControllerError",
    "FrameworkMissing",
    "InvalidNetwork",
    "NoSuchPort",
    "QueuesNotApplied",
    "StateNotSaved",
    "SwitchNotConnected",
    "SwitchRefused",
    "SwitchTimeout",
    "UnknownPort",
    "UnknownSwitch",
]


class ControllerError(Exception):
    """Base class of all errors of this package."""


class FrameworkMissing(ControllerError):
    """No OpenFlow framework is installed."""


class ControllerBusy(ControllerError):
    """A request waited too long and was not carried out."""

    def __init__(self) -> None:
        super().__init__("the controller is busy; nothing was changed; retry later")


class SwitchNotConnected(ControllerError):
    """The switch has no control channel at the moment."""

    def __init__(self, switch: str) -> None:
        self.switch = switch
        super().__init__(f"switch {switch!r} is not connected; the previous rules stay active")


class SwitchRefused(ControllerError):
    """A switch answered with an error; ``rule`` describes the message that it refused."""

    def __init__(self, switch: str, detail: str, rule: str | None = None) -> None:
        self.switch, self.detail, self.rule = switch, detail, rule
        super().__init__(
            f"switch {switch!r} refused {rule or 'a message'} ({detail}); "
            "the previous rules stay active"
        )


class SwitchTimeout(SwitchRefused):
    """A switch did not answer in time; whether it applied the message is not known."""


class InvalidNetwork(ControllerError):
    """The desired network contradicts itself."""


class StateNotSaved(ControllerError):
    """The desired network could not be saved, so it was not applied."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"cannot write the state file ({detail}); the previous rules stay active")


class UnknownSwitch(ControllerError):
    """The controller was not started with this switch."""

    def __init__(self, switch: str, known: Iterable[str]) -> None:
        self.switch = switch
        super().__init__(
            f"unknown switch {switch!r}; the controller manages {', '.join(sorted(known))}"
        )


class UnknownPort(ControllerError):
    """A port for which queues are requested has not been discovered."""

    def __init__(self, switch: str, towards: str | None) -> None:
        self.switch, self.towards = switch, towards
        if towards:
            message = f"no link from switch {switch!r} to {towards!r} has been discovered"
        else:
            message = f"the port of switch {switch!r} towards its hosts is not configured"
        super().__init__(message)


class AgentError(ControllerError):
    """Base class of the errors of the switch agent and its client."""


class AgentUnreachable(AgentError):
    """The agent sent no response, or an unexpected one."""

    def __init__(self, url: str, detail: str) -> None:
        self.url, self.detail = url, detail
        super().__init__(f"switch agent unreachable: {detail}")


class AgentRefused(AgentError):
    """The agent rejected the request."""

    def __init__(self, url: str, detail: str) -> None:
        self.url, self.detail = url, detail
        super().__init__(f"the switch agent at {url} rejected the request: {detail}")


class CannotShape(AgentError):
    """A port cannot have the requested queues."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class NoSuchPort(AgentError):
    """No bridge of the switch host has the port."""

    def __init__(self, port: str) -> None:
        self.port = port
        super().__init__(f"no bridge of this host has a port {port!r}")


class QueuesNotApplied(AgentError):
    """A command that sets up queues failed."""

    def __init__(self, command: str, detail: str) -> None:
        self.command, self.detail = command, detail
        super().__init__(f"{command}: {detail}")
