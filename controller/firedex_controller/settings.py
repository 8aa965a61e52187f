"""The settings of the controller.

The framework creates the application, so the application reads its settings from the environment,
where ``firedex controller`` puts them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = [
    "DEFAULT_AGENT",
    "ControllerSettings",
    "SwitchSettings",
    "parse_switch",
    "token_is_valid",
]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
VARIABLE = "FIREDEX_CONTROLLER_SETTINGS"
DEFAULT_AGENT = "http://127.0.0.1:8082"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """A switch: datapath id, name of the port towards its hosts, URL of its switch agent."""

    datapath_id: int
    hosts_port: str | None = None
    agent: str = DEFAULT_AGENT


def parse_switch(text: str) -> tuple[str, int, str | None]:
    """Parse ``NAME=DATAPATH_ID[:PORT]``; the port is the one towards the switch's hosts."""
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


def token_is_valid(token: str) -> bool:
    """Return whether a token can be sent in a header: printable ASCII without spaces."""
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Switches by name, address and token of the API, token for the agents, state file."""

    switches: Mapping[str, SwitchSettings]
    api_host: str = "127.0.0.1"
    api_port: int = 8080
    token: str | None = field(default=None, repr=False)
    agent_token: str | None = field(default=None, repr=False)
    state: Path | None = None

    def to_environment(self) -> dict[str, str]:
        """Return the environment variable that holds the settings."""
        plain = {
            **asdict(self),
            "switches": {name: asdict(switch) for name, switch in self.switches.items()},
            "state": str(self.state) if self.state else None,
        }
        return {VARIABLE: json.dumps(plain)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ControllerSettings":
        """Read the settings from the environment; without the variable there are no switches."""
        plain = json.loads(environment.get(VARIABLE, '{"switches": {}}'))
        switches = {name: SwitchSettings(**given) for name, given in plain["switches"].items()}
        state = Path(plain["state"]) if plain.get("state") else None
        return cls(**{**plain, "switches": switches, "state": state})
