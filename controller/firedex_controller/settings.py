"""What the controller is told when it starts. The framework makes the app, so it reads its settings
from the environment that the launcher has set."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ControllerSettings", "parse_switch"]


def parse_switch(text: str) -> tuple[str, tuple[int, str]]:
    """``NAME=DATAPATH_ID:PORT``, the port being the one whose queues FireDeX sets."""
    name, _, rest = text.partition("=")
    datapath, _, port = rest.partition(":")
    try:
        number = int(datapath, 16)
    except ValueError:
        number = 0
    if not name or number <= 0 or not port:
        raise ValueError(
            f"{text!r} is not a switch; write NAME=DATAPATH_ID:PORT, "
            "such as s1=0000000000000001:s1-eth3"
        )
    return name, (number, port)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The switches by name, and where the API listens."""

    switches: dict[str, tuple[int, str]]
    api_host: str
    api_port: int

    def to_environment(self) -> dict[str, str]:
        """As the launcher hands it over."""
        return {
            "FIREDEX_CONTROLLER_SWITCHES": json.dumps(self.switches),
            "FIREDEX_CONTROLLER_API": f"{self.api_host}:{self.api_port}",
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ControllerSettings":
        """As the app finds it."""
        listed = json.loads(environment.get("FIREDEX_CONTROLLER_SWITCHES", "{}"))
        host, _, port = environment.get("FIREDEX_CONTROLLER_API", "127.0.0.1:8080").rpartition(":")
        return cls(
            switches={
                name: (int(datapath), str(port)) for name, (datapath, port) in listed.items()
            },
            api_host=host,
            api_port=int(port),
        )
