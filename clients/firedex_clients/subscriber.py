"""Subscriber: registers subscriptions with utilities and opens one connection for each flow."""

import asyncio
import logging
from concurrent.futures import Future
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType

from firedex.transport.mqtt_security import MqttSecurity
from firedex.transport.service_client import ClockOffset, ServiceClient
from firedex.transport.service_follower import REPORT_SECONDS
from firedex.wire import Configuration, Subscription, Utility
from firedex.wire.addresses import parse_host_port
from firedex.wire.workload import Transport
from firedex_clients.errors import ClientError
from firedex_clients.event_loop import EventLoopThread, run_blocking
from firedex_clients.events import Event, EventStream, OnEvent
from firedex_clients.plan import AddressTranslation
from firedex_clients.registration import (
    SubscriberDetails,
    client_errors,
    connection_security,
    service_target,
)
from firedex_clients.session import Session, SessionSettings
from firedex_clients.subscriptions import OnDelivery, Subscriptions

__all__ = ["Event", "Subscriber"]

log = logging.getLogger("firedex.clients")
TIMEOUT_SECONDS = 10.0
"""How long closing waits for the thread of the event loop."""


class Subscriber:
    """All connections of one subscriber; use it as a context manager, plain or ``async``.

    ``subscribe`` may be called before or after entering the context. ``on_event`` is called in the
    thread that reads all connections, so it must return quickly. Without it, iterate over the
    stream that ``subscribe`` returns.

    ``security`` sets TLS, client certificate and credentials of the connections to the gateway.
    With TLS, the user name is by default ``id`` and the password ``token``.
    ``service_ca`` is a PEM file with the certificates to trust for a service at https://.
    ``broker`` (HOST:PORT) is used for one unmanaged connection if the service is unreachable and
    no plan is known. ``plan_file`` stores the last plan for a start without the service.
    In a network with address translation, ``source_address`` is the local address and ``gateway``
    (HOST:PORT) the remote address of connections, instead of those in the plan.

    By default the service keeps the registration when the subscriber is closed, so that its
    capacity is available when it returns. With ``remove_registration``, the registration is
    removed when the subscriber is closed, and if opening fails.
    """

    def __init__(
        self,
        service_url: str,
        *,
        id: str,  # noqa: A002  # the public name
        switch: str,
        address: str,
        role: str = "crew",
        transport: Transport = "tcp",
        token: str | None = None,
        service_ca: Path | None = None,
        broker: str | None = None,
        plan_file: Path | None = None,
        on_delivery: OnDelivery | None = None,
        report_seconds: float = REPORT_SECONDS,
        source_address: str | None = None,
        gateway: str | None = None,
        remove_registration: bool = False,
        security: MqttSecurity | None = None,
    ) -> None:
        self._id = id
        self._settings = SessionSettings(
            target=service_target(service_url, token, service_ca),
            details=SubscriberDetails(
                id=id, switch=switch, role=role, transport=transport, address=IPv4Address(address)
            ),
            remove_registration=remove_registration,
            broker=None if broker is None else parse_host_port(broker),
            translation=AddressTranslation(
                source_address=source_address,
                gateway=None if gateway is None else parse_host_port(gateway),
            ),
            plan_file=plan_file,
            report_seconds=report_seconds,
            security=connection_security(security, id, token),
        )
        self._subscriptions = Subscriptions(id, on_delivery)
        self._streams: dict[str, EventStream] = {}
        self._levels: dict[tuple[str, int], int] = {}
        """The MQTT protocol level of each broker, by host and port, once known."""
        self._thread: EventLoopThread | None = None
        self._session: Session | None = None

    # -- subscribing -------------------------------------------------------------------------------

    def subscribe(
        self,
        filter: str,  # noqa: A002  # the term of MQTT
        *,
        utility: Utility,
        on_event: OnEvent | None = None,
        qos: int = 0,
        deadline_seconds: float | None = None,
        deadline_percentile: float = 0.95,
    ) -> EventStream:
        """Subscribe to a filter and return the stream of its events.

        If ``on_event`` is given, it is called for each event, and the stream stays empty.
        A subscription to the same filter is replaced.
        """
        subscription = Subscription(
            filter=filter,
            utility=utility,
            qos=qos,
            deadline_seconds=deadline_seconds,
            deadline_percentile=deadline_percentile,
        )
        stream = EventStream()
        if (old := self._streams.get(filter)) is not None:
            old.close()
        self._streams[filter] = stream
        self._subscriptions.add(subscription, on_event or stream.put)
        self._changed()
        return stream

    def unsubscribe(self, filter: str) -> None:  # noqa: A002  # the term of MQTT
        """Remove the subscription to a filter."""
        if filter not in self._subscriptions:
            raise ClientError(f"{filter!r} is not subscribed")
        self._subscriptions.remove(filter)
        self._streams.pop(filter).close()
        self._changed()

    def _changed(self) -> None:
        session = self._session
        if session is not None and self._thread is not None:
            self._thread.call(session.subscriptions_changed)

    def topics(self) -> list[str]:
        """Return the names of all topics that the service knows."""
        with client_errors():
            return run_blocking(self._fetch_topics())

    async def _fetch_topics(self) -> list[str]:
        async with ServiceClient(self._settings.target) as service:
            return await service.topics()

    # -- state -------------------------------------------------------------------------------------

    @property
    def configuration(self) -> Configuration | None:
        """The last configuration received; None on an unmanaged connection."""
        return None if self._session is None else self._session.configuration

    @property
    def clock_offset(self) -> ClockOffset | None:
        """The estimated offset of the service's clock from the local clock, once known."""
        return None if self._session is None else self._session.clock_offset

    @property
    def moves(self) -> int:
        """How many times a filter has moved from one connection to another."""
        return 0 if self._session is None else self._session.flows.moves

    def settled(self) -> bool:
        """Return whether every filter is subscribed on the flow that the plan assigns."""
        return self._session is not None and self._session.settled.is_set()

    def missing_events(self) -> dict[str, int]:
        """Return the number of missing events by filter, found by gaps in sequence numbers."""
        return {each.filter: each.received.missing for each in self._subscriptions.all()}

    def duplicate_events(self) -> dict[str, int]:
        """Return the number of discarded duplicate events by filter."""
        return {each.filter: each.duplicates for each in self._subscriptions.all()}

    # -- entering and leaving ----------------------------------------------------------------------

    def __enter__(self) -> "Subscriber":
        """Register, and open all flows; raise `ClientError` if that fails."""
        if self._thread is not None:
            raise ClientError("this subscriber is already open")
        self._thread = EventLoopThread(self._id)
        opening: Future[None] | None = None
        try:  # a signal may interrupt the wait; then everything is closed
            opening = self._thread.submit(self._open(self._thread))
            opening.result()
        except BaseException:
            if opening is not None:
                opening.cancel()
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        self._close()

    async def __aenter__(self) -> "Subscriber":
        """Register, and open all flows."""
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await asyncio.to_thread(self._close)

    async def _open(self, thread: EventLoopThread) -> None:
        self._session = Session(self._settings, self._subscriptions, thread, self._levels)
        await self._session.open()

    def _close(self) -> None:
        """Close everything; a callback may call this in the thread of the loop."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        closing = thread.submit(self._close_session(thread))
        if not thread.is_current:  # a thread cannot wait for itself
            try:
                closing.result(TIMEOUT_SECONDS)
                thread.join(TIMEOUT_SECONDS)
            except TimeoutError:
                log.warning(
                    "%s: a callback has not returned; the thread will end after it returns",
                    self._id,
                )
        for stream in self._streams.values():
            stream.close()

    async def _close_session(self, thread: EventLoopThread) -> None:
        try:
            if self._session is not None:
                await self._session.close()
        finally:
            thread.stop()
