"""The exceptions of ``firedex_controller``.

::

    ControllerError
    ├── FrameworkMissing      neither os-ken nor Ryu is installed, or not the one asked for
    ├── SwitchNotConnected    rules for a switch that has no control channel now
    ├── SwitchRefused         the switch answered a message with an error
    │   └── SwitchSilent      … or did not answer in time
    ├── InvalidNetwork        a desired network that contradicts itself
    ├── StateNotKept          the state file cannot be written
    ├── UnknownSwitch         rules for a switch that the controller was not told of
    └── PortUnknown           queues for a port that is not known, or not yet
"""

from collections.abc import Iterable

__all__ = [
    "ControllerError",
    "FrameworkMissing",
    "InvalidNetwork",
    "PortUnknown",
    "StateNotKept",
    "SwitchNotConnected",
    "SwitchRefused",
    "SwitchSilent",
    "UnknownSwitch",
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
    """A switch refused a message, or did not answer; ``rule`` says in words which."""

    def __init__(self, switch: str, detail: str, rule: str | None = None) -> None:
        self.switch, self.detail, self.rule = switch, detail, rule
        super().__init__(
            f"switch {switch!r} refused {rule or 'a message'} ({detail}); the previous rules stand"
        )


class SwitchSilent(SwitchRefused):
    """A switch did not answer in time; what it has done is not known."""


class InvalidNetwork(ControllerError):
    """A desired network that contradicts itself."""


class StateNotKept(ControllerError):
    """What is desired could not be written down, so it was not carried out."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"the state cannot be kept ({detail}); the previous rules stand")


class UnknownSwitch(ControllerError):
    """Rules were given for a switch that the controller was not told of."""

    def __init__(self, switch: str, known: Iterable[str]) -> None:
        self.switch = switch
        super().__init__(f"there is no switch {switch!r}; there are {', '.join(sorted(known))}")


class PortUnknown(ControllerError):
    """Queues were given for a port that is not known, or not yet."""

    def __init__(self, switch: str, towards: str | None) -> None:
        self.switch, self.towards = switch, towards
        what = f"link from {switch!r} to {towards!r}" if towards else f"port of {switch!r} to hosts"
        super().__init__(f"no {what} is known")
