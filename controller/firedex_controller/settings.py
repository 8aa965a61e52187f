"""What the controller is told when it starts. The framework makes the app, so it reads its settings
from the environment that the launcher has set."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["DEFAULT_AGENT", "ControllerSettings", "SwitchSettings", "parse_switch"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
VARIABLE = "FIREDEX_CONTROLLER_SETTINGS"
DEFAULT_AGENT = "http://127.0.0.1:8082"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """A switch: its datapath id, the port to its own hosts, and the agent that sets its queues."""

    datapath_id: int
    hosts_port: str | None = None
    agent: str = DEFAULT_AGENT


def parse_switch(text: str) -> tuple[str, int, str | None]:
    """``NAME=DATAPATH_ID[:PORT]``, the port being the one to the switch's own hosts."""
    name, _, rest = text.partition("=")
    datapath, _, port = rest.partition(":")
    try:
        number = int(datapath, 16)
    except ValueError:
        number = 0
    if not NAME.fullmatch(name) or not datapath.isalnum() or not 0 < number < 2**64:
        raise ValueError(
            f"{text!r} is not a switch; write NAME=DATAPATH_ID or NAME=DATAPATH_ID:PORT, "
            "such as s1=0000000000000001:s1-eth3"
        )
    return name, number, port or None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The switches by name, where the API listens and who may use it, where state is kept."""

    switches: Mapping[str, SwitchSettings]
    api_host: str = "127.0.0.1"
    api_port: int = 8080
    token: str | None = field(default=None, repr=False)
    agent_token: str | None = field(default=None, repr=False)
    state: Path | None = None

    def to_environment(self) -> dict[str, str]:
        """As the launcher hands it over."""
        plain = {
            **asdict(self),
            "switches": {name: asdict(switch) for name, switch in self.switches.items()},
            "state": str(self.state) if self.state else None,
        }
        return {VARIABLE: json.dumps(plain)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ControllerSettings":
        """As the app finds it."""
        plain = json.loads(environment.get(VARIABLE, '{"switches": {}}'))
        switches = {name: SwitchSettings(**given) for name, given in plain["switches"].items()}
        state = Path(plain["state"]) if plain.get("state") else None
        return cls(**{**plain, "switches": switches, "state": state})
