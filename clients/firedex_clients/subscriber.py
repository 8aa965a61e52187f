"""Subscribing with a utility: the service says which flow, this opens one connection for each."""

import asyncio
import logging
import threading
import time
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Any

from firedex.wire import Configuration, Statistics, Subscription, Utility
from firedex.wire.addresses import parse_host_port
from firedex.wire.workload import Transport
from firedex_clients.client_plan import (
    ClientPlan,
    PlannedFlow,
    Translation,
    plain_plan,
    plan_of,
)
from firedex_clients.connection_loop import ConnectionLoop
from firedex_clients.errors import ClientError, Closed, ConnectionRefused, ServiceAbsent
from firedex_clients.event import Event, OnEvent
from firedex_clients.event_stream import EventStream
from firedex_clients.flow_connection import FlowConnection, FlowListener
from firedex_clients.flow_set import FlowSet
from firedex_clients.flow_statistics import FlowStatistics
from firedex_clients.own_registration import OwnRegistration
from firedex_clients.plan_file import read_plan, write_plan
from firedex_clients.plan_following import REPORT_SECONDS, PlanFollower
from firedex_clients.service_client import ClockOffset, ServiceClient
from firedex_clients.sn_flow import SnFlow
from firedex_clients.subscriptions import OnDelivery, Subscribed, Subscriptions
from firedex_clients.tcp_flow import TcpFlow

__all__ = ["Event", "Subscriber"]

log = logging.getLogger("firedex.clients")
PATIENCE_SECONDS = 10.0
FAREWELL_SECONDS = 2.0
CLOSED_SECONDS = 0.005
"""Between looks whether all is closed."""


class Subscriber:
    """All connections of one subscriber; use it as a context manager, plain or ``async``.

    Subscribe before or after entering. ``on_event`` is called in the thread that reads all
    connections: it must be quick. Without it, ``subscribe`` returns a stream to iterate over.

    ``service_ca`` (PEM) says whom to trust if the service is at https://.
    ``broker`` (HOST:PORT) is where one plain connection goes if the service was never there, until
    it is; ``plan_file`` keeps the last plan for a start without the service. Where something on the
    way translates addresses, ``source_address`` is where connections leave from, and ``gateway``
    (HOST:PORT) where they go, instead of what the plan says.

    A registration outlasts its subscriber, since capacity is kept for who comes back; with
    ``sign_off`` it is taken back on leaving, and if entering fails.
    """

    def __init__(
        self,
        service_url: str,
        *,
        id: str,  # noqa: A002  # its name
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
        sign_off: bool = False,
    ) -> None:
        self._service = ServiceClient(service_url, token, ca_file=service_ca)
        self._id = id
        self._registration = OwnRegistration(
            self._service,
            name=id,
            switch=switch,
            role=role,
            transport=transport,
            address=IPv4Address(address),
            sign_off=sign_off,
        )
        self._broker = None if broker is None else parse_host_port(broker)
        self._translation = Translation(
            source_address=source_address,
            gateway=None if gateway is None else parse_host_port(gateway),
        )
        self._plan_file = plan_file
        self._report_seconds = report_seconds
        self._statistics = FlowStatistics(id)
        self._subscriptions = Subscriptions(self._statistics)
        self._subscriptions.on_delivery = on_delivery
        self._streams: dict[str, EventStream] = {}
        self._configuration: Configuration | None = None
        self._loop: ConnectionLoop | None = None
        self._flows: FlowSet | None = None
        self._follower: PlanFollower | None = None
        self._levels: dict[tuple[str, int], int] = {}
        self._settled = threading.Event()
        self._refusal: Exception | None = None

    # -- subscribing -------------------------------------------------------------------------------

    def subscribe(
        self,
        filter: str,  # noqa: A002  # MQTT's word
        *,
        utility: Utility,
        on_event: OnEvent | None = None,
        qos: int = 0,
        deadline_seconds: float | None = None,
        deadline_percentile: float = 0.95,
    ) -> EventStream:
        """Want the events of ``filter``; ``on_event`` is called for each, or take them from what
        is returned."""
        wanted = Subscription(
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
        self._subscriptions.add(wanted, on_event or stream.put)
        self._changed()
        return stream

    def unsubscribe(self, filter: str) -> None:  # noqa: A002  # MQTT's word
        """Want no more of ``filter``."""
        if filter not in self._subscriptions:
            raise ClientError(f"{filter!r} is not subscribed")
        self._subscriptions.remove(filter)
        self._streams.pop(filter).close()
        self._changed()

    def _changed(self) -> None:
        if self._follower is not None and self._loop is not None:
            self._loop.call(self._apply_present)
            self._follower.register_again()

    def topics(self) -> list[str]:
        """Names of the topics that there are."""
        return sorted(str(each["name"]) for each in self._service.topics() if "name" in each)

    # -- what is known -----------------------------------------------------------------------------

    @property
    def configuration(self) -> Configuration | None:
        """The last plan that was heard of; None on a plain connection."""
        return self._configuration

    @property
    def clock_offset(self) -> ClockOffset | None:
        """The service's clock minus ours, once it has been asked."""
        return None if self._follower is None else self._follower.clock_offset

    @property
    def moves(self) -> int:
        """How often a filter has moved from one connection to another."""
        return 0 if self._flows is None else self._flows.moves

    def settled(self) -> bool:
        """Whether every filter is in force on the flow where the plan wants it."""
        return self._settled.is_set()

    def missing_events(self) -> dict[str, int]:
        """For each filter, how many events have not come, by the sequence numbers of others."""
        return {each.filter: each.seen.missing for each in self._subscriptions.all()}

    def duplicate_events(self) -> dict[str, int]:
        """For each filter, how many events came more than once and were handed out once."""
        return {each.filter: each.duplicates for each in self._subscriptions.all()}

    # -- entering and leaving ----------------------------------------------------------------------

    def __enter__(self) -> "Subscriber":
        if self._loop is not None:
            raise ClientError("this subscriber has been entered already")
        try:  # whatever ends it, a signal too: nothing stays behind
            registered = self._register_or_read_plan()
            self._loop = ConnectionLoop(self._id)
            self._flows = FlowSet(self._loop, self._make_connection, _Listener(self))
            self._follower = PlanFollower(
                self._service,
                self._id,
                register=self._register,
                on_plan=self._new_plan,
                statistics=self._take_statistics,
                report_seconds=self._report_seconds,
            )
            self._loop.call(self._apply_present)
            self._wait_until_settled()
            write_plan(self._plan_file, self._configuration)
            self._follower.start(registered=registered)
        except BaseException:
            self._close()
            raise
        return self

    def _register_or_read_plan(self) -> bool:
        """Find out what to go by; whether the service says so."""
        try:
            self._configuration = self._register()
        except ServiceAbsent:
            self._configuration = read_plan(self._plan_file)
            if self._configuration is None and self._broker is None:
                raise
            log.warning("%s: the service is away; %s", self._id, self._how_without())
            return False
        return True

    def _wait_until_settled(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._settled.wait(0.01):
            if self._refusal is not None:
                raise self._refusal
            if time.monotonic() > until:
                raise ConnectionRefused(f"{self._id}: not all flows could be opened in time")

    def _how_without(self) -> str:
        if self._configuration is not None:
            return f"going by the plan of version {self._configuration.version}"
        return "one plain connection for everything"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    async def __aenter__(self) -> "Subscriber":
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """Also out of a callback, where the loop's thread is this one and cannot be waited for."""
        loop, flows = self._loop, self._flows
        wait = loop is None or not loop.is_current
        if self._follower is not None and self._follower.started:
            self._follower.stop(wait=wait)
        self._follower = None
        if loop is not None and flows is not None:
            loop.call(partial(_say_goodbye, loop, flows))
            if wait and not loop.join(PATIENCE_SECONDS):
                log.warning("%s: a callback has not returned; all ends when it does", self._id)
        self._registration.leave()
        self._loop = self._flows = None
        self._settled.clear()
        self._refusal = None
        for stream in self._streams.values():
            stream.close()

    # -- plans -------------------------------------------------------------------------------------

    def _register(self) -> Configuration:
        wanted = self._subscriptions.all()
        return self._registration.put(tuple(each.subscription for each in wanted))

    def _new_plan(self, configuration: Configuration) -> None:
        """In the follower's thread."""
        old = self._configuration
        mine = [flow for flow in configuration.flows if flow.subscriber == self._id]
        if not mine and self._subscriptions.all():
            return
        if old is not None and old.version > configuration.version:
            log.info("%s: plan %d after plan %d", self._id, configuration.version, old.version)
        self._settled.clear()
        self._configuration = configuration
        write_plan(self._plan_file, self._configuration)
        if self._loop is not None:
            self._loop.call(self._apply_present)

    def _present_plan(self) -> ClientPlan:
        wanted = self._subscriptions.all()
        names = [each.filter for each in wanted]
        if self._configuration is not None:
            return self._translation.applied_to(plan_of(self._configuration, self._id, names))
        host, port = self._broker or ("", 0)
        lasting = any(each.subscription.qos for each in wanted)
        return plain_plan(host, port, names, lasting=lasting)

    def _apply_present(self) -> None:
        """In the loop's thread."""
        if self._flows is not None:
            self._settled.clear()
            wanted = {each.filter: each.wanted() for each in self._subscriptions.all()}
            self._flows.apply(self._present_plan(), wanted)
            self._check_settled()

    def _check_settled(self) -> None:
        if self._flows is not None and self._flows.settled():
            self._settled.set()

    def _make_connection(self, flow: PlannedFlow, listener: FlowListener) -> FlowConnection:
        if self._loop is None:
            raise Closed(f"subscriber {self._id!r} has been left")
        ports = flow.settings.bind_ports
        # Two connections may stand side by side while filters move, also of one flow.
        client_id = f"{self._id}-{flow.number}" + (f"-{ports[0]}" if ports else "")
        client_id += "-lasting" if flow.lasting else ""
        if flow.settings.transport == "udp":
            return SnFlow(
                self._loop, flow.settings, listener, client_id=client_id, lasting=flow.lasting
            )
        return TcpFlow(
            self._loop,
            flow.settings,
            listener,
            client_id=client_id,
            lasting=flow.lasting,
            levels=self._levels,
        )

    def _take_statistics(self, offset: ClockOffset | None) -> tuple[Statistics, ...]:
        seconds = None if offset is None else offset.seconds

        def take() -> tuple[Statistics, ...]:
            for each in self._subscriptions.all():
                self._count_missing(each)
            return self._statistics.take(seconds)

        return () if self._loop is None else self._loop.result_of(take, PATIENCE_SECONDS)

    def _count_missing(self, subscribed: Subscribed) -> None:
        missing = subscribed.seen.take_missing()
        place = None if self._flows is None else self._flows.target_of(subscribed.filter)
        if place is not None:
            for topic, events in missing.items():
                self._statistics.missing(place.flow.number, topic, events)


def _say_goodbye(loop: ConnectionLoop, flows: FlowSet) -> None:
    """In the loop's thread, which ends when all connections have."""
    leaving = tuple(flows.close())
    until = time.monotonic() + FAREWELL_SECONDS

    def stop_when_closed() -> None:
        if all(each.closed for each in leaving) or time.monotonic() > until:
            loop.stop()
        else:
            loop.later(CLOSED_SECONDS, stop_when_closed)

    stop_when_closed()


class _Listener:
    """What connections tell their subscriber, in the loop's thread."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._deliver = subscriber._subscriptions.deliver

    def granted(self, connection: FlowConnection, name: str) -> None:  # noqa: ARG002
        flows = self._subscriber._flows
        if flows is not None:
            flows.settle(name)
            self._subscriber._check_settled()

    def lost(self, connection: FlowConnection) -> None:  # noqa: ARG002
        flows = self._subscriber._flows
        if flows is not None and not flows.settled():
            self._subscriber._settled.clear()

    def refused(self, connection: FlowConnection, error: Exception) -> None:  # noqa: ARG002
        log.warning("%s: %s", self._subscriber._id, error)
        self._subscriber._refusal = error

    def arrived(self, connection: FlowConnection, *event: Any) -> None:
        flows = self._subscriber._flows
        place = None if flows is None else flows.place_of(connection)
        if place is not None:
            if not connection.wanted:
                place.last_event = time.monotonic()
            self._deliver(place, *event)
