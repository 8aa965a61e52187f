"""The exceptions of ``firedex_controller``.

::

    ControllerError
    ├── FrameworkMissing      neither os-ken nor Ryu is installed, or not the one asked for
    ├── SwitchNotConnected    rules for a switch that has no control channel now
    ├── SwitchRefused         the switch answered a message with an error
    └── QueuesNotApplied      a command on the switch host failed
"""

__all__ = [
    "ControllerError",
    "FrameworkMissing",
    "QueuesNotApplied",
    "SwitchNotConnected",
    "SwitchRefused",
]


class ControllerError(Exception):
    """The root of what ``firedex_controller`` raises."""


class FrameworkMissing(ControllerError):
    """No OpenFlow framework to run on."""


class SwitchNotConnected(ControllerError):
    """Rules were given for a switch that is not connected."""

    def __init__(self, switch: str) -> None:
        self.switch = switch
        super().__init__(f"switch {switch!r} is not connected; the previous rules stand")


class SwitchRefused(ControllerError):
    """A switch refused a message."""

    def __init__(self, switch: str, detail: str) -> None:
        self.switch, self.detail = switch, detail
        super().__init__(f"switch {switch!r} refused: {detail}")


class QueuesNotApplied(ControllerError):
    """A command that sets up queues failed."""

    def __init__(self, command: str, detail: str) -> None:
        self.command, self.detail = command, detail
        super().__init__(f"{command}: {detail}")
