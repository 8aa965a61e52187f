"""Runs on a subscriber's host: comes and goes as the timeline says, listens, records deliveries."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from firedex.scenario_file import read_scenario
from firedex.service_access import ServiceAccess, ServiceAccessError
from firedex.wire import Subscriber as SubscriberValue
from firedex_clients import ClientError, Event, Subscriber
from firedex_clients.delivery_log import record_of, write_records
from firedex_emulation.party_orders import PartyOrders
from firedex_emulation.timeline_effects import presence

__all__: list[str] = []

POLL_SECONDS = 0.02
RETRY_SECONDS = 0.25
REPORT_SECONDS = 30.0
"""Reports go over the same links as events, and no model counts them."""


class Visits:
    """A subscriber's times on the site, and what it received meanwhile."""

    def __init__(self, orders: PartyOrders) -> None:
        self._orders = orders
        self._run = Path(orders.run_folder)
        self.scenario = read_scenario(orders.scenario)
        self._wanted: SubscriberValue = next(
            each for each in self.scenario.subscribers if each.id == orders.name
        )
        self.transport = self._wanted.transport or self.scenario.transport
        self.events: list[Event] = []
        self.visits: list[dict[str, Any]] = []

    def all(self) -> None:
        """Come and go until the file ``stop`` is there."""
        spans = presence(self.scenario, self._orders.name)
        if not spans or spans[0][0] > 0:
            (self._run / f"{self._orders.name}.ready").touch()
        for began, ended in spans:
            if began > 0 and not self._wait_until(began):
                return
            self._visit(ended)
            if self._stopped():
                return

    def _visit(self, ended: float | None) -> None:
        visit: dict[str, Any] = {"asked_at": time.time(), "settled": []}
        self.visits.append(visit)
        while not self._stopped():
            try:
                with self._subscriber() as subscriber:
                    visit["ready_at"] = time.time()
                    (self._run / f"{self._orders.name}.ready").touch()
                    self._stay(subscriber, ended, visit["settled"])
                break
            except ClientError as error:  # a part is away for a moment, as the timeline may want
                print(f"not in yet: {error}", file=sys.stderr, flush=True)
                time.sleep(RETRY_SECONDS)
        visit["left_at"] = time.time()
        if ended is not None and not self._stopped():
            self._sign_off()
            visit["signed_off_at"] = time.time()

    def _stay(
        self, subscriber: Subscriber, ended: float | None, settled: list[list[float]]
    ) -> None:
        """Until it is time, noting when which plan was in force here."""
        version = 0
        while not self._stopped() and (ended is None or not self._is_after(ended)):
            now = subscriber.configuration
            if now is not None and now.version != version and subscriber.settled():
                version = now.version
                settled.append([version, time.time()])
            time.sleep(POLL_SECONDS)

    def _subscriber(self) -> Subscriber:
        wanted, orders = self._wanted, self._orders
        subscriber = Subscriber(
            orders.service,
            id=orders.name,
            switch=wanted.switch,
            address=orders.address,
            role=wanted.role,
            transport=self.transport,
            report_seconds=REPORT_SECONDS,
            source_address=orders.source_address,
            gateway=orders.gateway,
        )
        for each in wanted.subscriptions:
            subscriber.subscribe(
                each.filter,
                utility=each.utility,
                on_event=self.events.append,
                qos=each.qos,
                deadline_seconds=each.deadline_seconds,
                deadline_percentile=each.deadline_percentile,
            )
        return subscriber

    def _sign_off(self) -> None:
        access = ServiceAccess(self._orders.service, None)
        try:
            access.ask("DELETE", f"/v1/subscribers/{self._orders.name}")
        except ServiceAccessError as error:
            print(f"not signed off: {error}", file=sys.stderr, flush=True)

    def _stopped(self) -> bool:
        return (self._run / "stop").exists()

    def _is_after(self, seconds: float) -> bool:
        go = self._run / "go"
        return go.exists() and time.time() >= float(go.read_text()) + seconds

    def _wait_until(self, seconds: float) -> bool:
        while not self._is_after(seconds):
            if self._stopped():
                return False
            time.sleep(POLL_SECONDS)
        return True


def main(orders: PartyOrders) -> None:
    """Visit as the timeline says; then write the records and when which plan was in force."""
    visits = Visits(orders)
    visits.all()
    broker = visits.scenario.network.broker
    write_records(
        Path(orders.records),
        [
            record_of(
                event,
                orders.name,
                run=orders.way,
                site=broker.site,
                broker=broker.id,
                transport=visits.transport,
            )
            for event in visits.events
        ],
    )
    unfinished = Path(orders.run_folder) / f"{orders.name}.visits.unfinished"
    unfinished.write_text(json.dumps(visits.visits))
    unfinished.rename(Path(orders.run_folder) / f"{orders.name}.visits.json")


if __name__ == "__main__":
    main(PartyOrders.from_argument(sys.argv[1]))
