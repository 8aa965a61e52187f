"""Runs on a subscriber's host: registers what the scenario says, listens, records deliveries."""

import sys
import time
from pathlib import Path

from firedex.scenario_file import read_scenario
from firedex.wire import DeliveryRecord
from firedex.wire.packet_sizes import wire_bytes
from firedex_clients import Event, Subscriber
from firedex_clients.delivery_log import write_records

__all__: list[str] = []

POLL_SECONDS = 0.05


def main(
    scenario_path: str, name: str, address: str, service: str, run: str, records: str, way: str
) -> None:
    """Listen until the file ``stop`` appears in ``run``, then write ``records``."""
    scenario = read_scenario(scenario_path)
    wanted = next(s for s in scenario.subscribers if s.id == name)
    events: list[Event] = []
    subscriber = Subscriber(
        service, id=name, switch=wanted.switch, address=address, role=wanted.role
    )
    for subscription in wanted.subscriptions:
        subscriber.subscribe(
            subscription.filter,
            utility=subscription.utility,
            on_event=events.append,
            qos=subscription.qos,
            deadline_seconds=subscription.deadline_seconds,
        )
    with subscriber:
        (Path(run) / f"{name}.ready").touch()
        while not (Path(run) / "stop").exists():
            time.sleep(POLL_SECONDS)
        received = list(events)
    broker = scenario.network.broker.id
    write_records(Path(records), [_record(event, name, broker, way) for event in received])
    (Path(run) / f"{name}.done").touch()


def _record(event: Event, subscriber: str, broker: str, way: str) -> DeliveryRecord:
    return DeliveryRecord(
        run=way,
        broker=broker,
        publication_id=event.event_id or "",
        topic=event.topic,
        publisher=None,
        subscriber=subscriber,
        filter=event.filter,
        flow=event.flow,
        priority=event.priority,
        configuration_version=event.configuration_version,
        wire_bytes=wire_bytes(
            payload_bytes=len(event.payload),
            transport="tcp",
            topic=event.topic,
            stamped=event.event_id is not None,
        ),
        published_at_seconds=event.published_at_seconds,
        received_at_seconds=event.received_at_seconds,
        outcome="delivered",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
