"""A table of filters with a clock and a state file, and clients that send packets to it."""

from pathlib import Path
from typing import Any

from firedex.gateway.interest import InterestLimits, InterestTable
from firedex.gateway.interest_packets import ConnectionObserver
from firedex.gateway.interest_store import InterestStore
from firedex.wire import InterestReport, from_json, to_json
from tests.support.session_packets import (
    connack,
    connect,
    disconnect,
    suback,
    subscribe,
    unsuback,
    unsubscribe,
)

__all__ = ["REFUSED", "Client", "Clock", "Site", "resumed"]

MEMORY = Path(":memory:")
REFUSED = 0x80


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A table, its clock and its state, which outlives a restart."""

    def __init__(self, limits: InterestLimits | None = None) -> None:
        self.clock, self.limits = Clock(), limits
        self.store = InterestStore(MEMORY, self.clock)
        self.versions = list[int]()
        self.table = self._make_table()

    def _make_table(self) -> InterestTable:
        made = InterestTable(
            instance="test", clock=self.clock, limits=self.limits, sessions=self.store
        )
        for session in self.store.load():
            made.restore(session)
        made.on_change = lambda: self.versions.append(self.table.version)
        return made

    def save(self) -> None:
        self.store.write(self.store.take_changes())

    def restart(self) -> None:
        """Start the gateway again after it was killed."""
        self.save()
        self.table = self._make_table()

    def filters(self) -> dict[tuple[str, int], int]:
        report = self.table.snapshot().report()
        assert from_json(InterestReport, to_json(report)) == report
        return {(each.filter, each.qos): each.clients for each in report.filters}

    @property
    def unknown(self) -> int:
        return self.table.snapshot().unknown_sessions


class Client:
    """One connection of a client, with a broker that answers each packet at once."""

    def __init__(
        self,
        site: Site,
        client_id: str = "crew",
        *,
        level: int = 5,
        clean: bool = True,
        expiry: int | None = None,
        expiry_override: int | None = None,
        **answer: Any,
    ) -> None:
        self.level, self.packet_id = level, 0
        request = connect(client_id, level=level, clean=clean, expiry=expiry)
        self.observer = ConnectionObserver(site.table, request)
        self.observer.broker_sent(connack(level=level, expiry=expiry_override, **answer))

    def subscribe(self, *filters: tuple[str, int], codes: list[int] | None = None) -> None:
        self.request(*filters)
        granted = [qos for _, qos in filters] if codes is None else codes
        self.observer.broker_sent(suback(self.packet_id, granted, level=self.level))

    def request(self, *filters: tuple[str, int]) -> None:
        """Send SUBSCRIBE without an answer."""
        self.packet_id += 1
        self.observer.client_sent(subscribe(self.packet_id, filters, level=self.level))

    def unsubscribe(self, *names: str, codes: list[int] | None = None) -> None:
        self.packet_id += 1
        self.observer.client_sent(unsubscribe(self.packet_id, names, level=self.level))
        answer = unsuback(self.packet_id, codes or [0] * len(names), level=self.level)
        self.observer.broker_sent(answer)

    def disconnect(self, expiry: int | None = None) -> None:
        self.observer.client_sent(disconnect(level=self.level, expiry=expiry))
        self.observer.closed()

    def lose_connection(self) -> None:
        self.observer.closed()


def resumed(site: Site, client_id: str = "crew") -> Client:
    """Return a client whose session the broker still has."""
    return Client(site, client_id, clean=False, expiry=60, present=True)
