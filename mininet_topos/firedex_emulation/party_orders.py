"""What the programs on publishers' and subscribers' hosts are told, as one argument."""

import json
from dataclasses import asdict, dataclass

__all__ = ["PartyOrders"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyOrders:
    """Who a party is, whom it talks to, and where its files are; ``probes``: before the traffic.

    ``source_address`` and ``gateway`` are for the client library, where addresses are translated.
    """

    scenario: str
    name: str
    run_folder: str
    service: str
    broker: str
    way: str
    seconds: float
    seed: int
    records: str = ""
    address: str = "127.0.0.1"
    probes: bool = False
    broker_port: int = 1883
    mqtt_version: str = "5"
    source_address: str | None = None
    gateway: str | None = None

    def to_argument(self) -> str:
        """For a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> "PartyOrders":
        """What ``to_argument`` gave."""
        return cls(**json.loads(text))
