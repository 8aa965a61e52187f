"""Subscribing with a utility: the service says which flow, this opens one connection for each."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from types import TracebackType
from typing import Any

import paho.mqtt.client as mqtt

from firedex.wire import (
    Configuration,
    Flow,
    SubscriberRegistration,
    Subscription,
    Utility,
)
from firedex.wire import Subscriber as SubscriberValue
from firedex.wire.mqtt_names import matches
from firedex_clients.errors import ClientError, PortInUse
from firedex_clients.event_stamp import EventStamp
from firedex_clients.mqtt_connection import open_connection
from firedex_clients.service_client import ServiceClient

__all__ = ["Event", "Subscriber"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One delivered event. What a publisher did not stamp has no id and no delay."""

    topic: str
    filter: str
    payload: bytes
    flow: int
    priority: int
    configuration_version: int
    event_id: str | None
    published_at_seconds: float | None
    received_at_seconds: float


OnEvent = Callable[[Event], None]


class Subscriber:
    """All connections of one subscriber; use it as a context manager.

    Subscribe first; entering the context registers everything at once and opens the flows.
    """

    def __init__(
        self,
        service_url: str,
        *,
        id: str,  # noqa: A002  # its name
        switch: str,
        address: str,
        role: str = "crew",
    ) -> None:
        self._service = ServiceClient(service_url)
        self._id, self._switch, self._role = id, switch, role
        self._address = IPv4Address(address)
        self._wanted: dict[str, tuple[Subscription, OnEvent]] = {}
        self._connections: list[mqtt.Client] = []
        self._entered = False

    def subscribe(
        self,
        filter: str,  # noqa: A002  # MQTT's word
        *,
        utility: Utility,
        on_event: OnEvent,
        qos: int = 0,
        deadline_seconds: float | None = None,
    ) -> None:
        """Want the events of ``filter``; ``on_event`` is called for each that arrives."""
        if self._entered:
            raise ClientError("subscribe before entering the context")
        wanted = Subscription(
            filter=filter, utility=utility, qos=qos, deadline_seconds=deadline_seconds
        )
        self._wanted[filter] = (wanted, on_event)

    def __enter__(self) -> "Subscriber":
        self._entered = True
        registration = SubscriberRegistration(
            subscriber=SubscriberValue(
                id=self._id,
                switch=self._switch,
                role=self._role,
                transport="tcp",
                subscriptions=tuple(wanted for wanted, _ in self._wanted.values()),
            ),
            address=self._address,
        )
        configuration = self._service.register_subscriber(registration)
        try:
            for flow in configuration.flows:
                if flow.subscriber == self._id:
                    self._connections.append(self._open(flow, configuration))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for client in self._connections:
            client.disconnect()
            client.loop_stop()
        self._connections.clear()
        self._entered = False

    def _open(self, flow: Flow, configuration: Configuration) -> mqtt.Client:
        ends = flow.endpoints
        if ends is None:
            raise ClientError(f"flow {flow.flow} has no endpoints")

        def received(message: mqtt.MQTTMessage) -> None:
            self._hand_out(message, flow, configuration.version)

        last = ends.subscriber_ports[-1]
        for port in ends.subscriber_ports:
            try:
                return open_connection(
                    str(ends.gateway_address),
                    ends.gateway_port,
                    client_id=f"{self._id}-{flow.flow}",
                    bind=(str(ends.subscriber_address), port),
                    subscriptions=[(name, self._wanted[name][0].qos) for name in flow.filters],
                    on_message=received,
                )
            except PortInUse:
                # A port cannot be bound again right after a close; that is why there are two.
                if port == last:
                    raise
        raise ClientError(f"flow {flow.flow} has no ports")

    def _hand_out(self, message: mqtt.MQTTMessage, flow: Flow, version: int) -> None:
        now = time.time()
        properties: Any = message.properties
        stamp = EventStamp.from_properties(getattr(properties, "UserProperty", ()))
        # Brokers send a copy for each filter that matches, and say for which.
        numbers = getattr(properties, "SubscriptionIdentifier", None)
        if numbers:
            names = [flow.filters[number - 1] for number in numbers]
        else:
            names = [name for name in flow.filters if matches(name, message.topic)]
        for name in names:
            self._wanted[name][1](
                Event(
                    topic=message.topic,
                    filter=name,
                    payload=bytes(message.payload),
                    flow=flow.flow,
                    priority=flow.priority,
                    configuration_version=version,
                    event_id=stamp.event_id if stamp else None,
                    published_at_seconds=stamp.published_at_nanoseconds / 1e9 if stamp else None,
                    received_at_seconds=now,
                )
            )
