"""Program on a subscriber's host: joins and leaves as the timeline says and records deliveries."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from firedex.scenario import read_scenario
from firedex.system.files import write_atomically
from firedex.transport.http import HttpClient, HttpError, HttpTarget
from firedex.wire import Subscriber as SubscriberValue
from firedex_clients import ClientError, Event, Subscriber
from firedex_clients.delivery_log import delivery_record, write_records
from firedex_emulation.testbed.interface import HostSettings
from firedex_emulation.testbed.timeline import presence_intervals

__all__: list[str] = []

POLL_SECONDS = 0.02
RETRY_SECONDS = 0.25
REPORT_SECONDS = 30.0
"""Client reports use the same links as events, and the model does not include them."""


class SubscriberProgram:
    """One subscriber: its sessions and the events that it received."""

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self._run = Path(settings.run_folder)
        self.scenario = read_scenario(settings.scenario)
        self._scenario_subscriber: SubscriberValue = next(
            each for each in self.scenario.subscribers if each.id == settings.name
        )
        self.transport = self._scenario_subscriber.transport or self.scenario.transport
        self.events: list[Event] = []
        self.sessions: list[dict[str, Any]] = []

    def run(self) -> None:
        """Join and leave as the timeline says, until the file ``stop`` exists."""
        spans = presence_intervals(self.scenario, self._settings.name)
        if not spans or spans[0][0] > 0:
            (self._run / f"{self._settings.name}.ready").touch()
        for began, ended in spans:
            if began > 0 and not self._wait_until(began):
                return
            self._run_session(ended)
            if self._is_stopped():
                return

    def _run_session(self, ended: float | None) -> None:
        session: dict[str, Any] = {"asked_at": time.time(), "settled": []}
        self.sessions.append(session)
        while not self._is_stopped():
            try:
                with self._subscriber() as subscriber:
                    session["ready_at"] = time.time()
                    (self._run / f"{self._settings.name}.ready").touch()
                    self._stay_connected(subscriber, ended, session["settled"])
                break
            except ClientError as error:  # the timeline may have stopped a part; retry
                print(f"not connected yet: {error}", file=sys.stderr, flush=True)
                time.sleep(RETRY_SECONDS)
        session["left_at"] = time.time()
        if ended is not None and not self._is_stopped():
            self._unregister()
            session["signed_off_at"] = time.time()

    def _stay_connected(
        self, subscriber: Subscriber, ended: float | None, settled: list[list[float]]
    ) -> None:
        """Stay until ``ended``; note when each configuration was applied here."""
        version = 0
        while not self._is_stopped() and (ended is None or not self._is_after(ended)):
            now = subscriber.configuration
            if now is not None and now.version != version and subscriber.settled():
                version = now.version
                settled.append([version, time.time()])
            time.sleep(POLL_SECONDS)

    def _subscriber(self) -> Subscriber:
        subscriber_value, settings = self._scenario_subscriber, self._settings
        subscriber = Subscriber(
            settings.service,
            id=settings.name,
            switch=subscriber_value.switch,
            address=settings.address,
            role=subscriber_value.role,
            transport=self.transport,
            report_seconds=REPORT_SECONDS,
            source_address=settings.source_address,
            gateway=settings.gateway,
        )
        for each in subscriber_value.subscriptions:
            subscriber.subscribe(
                each.filter,
                utility=each.utility,
                on_event=self.events.append,
                qos=each.qos,
                deadline_seconds=each.deadline_seconds,
                deadline_percentile=each.deadline_percentile,
            )
        return subscriber

    def _unregister(self) -> None:
        try:
            with HttpClient(HttpTarget(url=self._settings.service)) as service:
                service.request("DELETE", f"/v1/subscribers/{self._settings.name}")
        except HttpError as error:
            print(f"registration not deleted: {error}", file=sys.stderr, flush=True)

    def _is_stopped(self) -> bool:
        return (self._run / "stop").exists()

    def _is_after(self, seconds: float) -> bool:
        go = self._run / "go"
        return go.exists() and time.time() >= float(go.read_text()) + seconds

    def _wait_until(self, seconds: float) -> bool:
        while not self._is_after(seconds):
            if self._is_stopped():
                return False
            time.sleep(POLL_SECONDS)
        return True


def main(settings: HostSettings) -> None:
    """Run all sessions; then write the delivery records and the sessions."""
    program = SubscriberProgram(settings)
    program.run()
    broker = program.scenario.network.broker
    write_records(
        Path(settings.records),
        [
            delivery_record(
                event,
                settings.name,
                run=settings.mode,
                site=broker.site,
                broker=broker.id,
                transport=program.transport,
            )
            for event in program.events
        ],
    )
    write_atomically(
        Path(settings.run_folder) / f"{settings.name}.sessions.json", json.dumps(program.sessions)
    )


if __name__ == "__main__":
    main(HostSettings.from_argument(sys.argv[1]))
