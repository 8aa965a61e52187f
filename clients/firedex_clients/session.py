"""One session of a subscriber in its event loop: registration, plan, connections, reports."""

import asyncio
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from firedex.transport.http import HttpError, HttpTarget
from firedex.transport.mqtt_security import MqttSecurity
from firedex.transport.service_client import ClockOffset, ServiceClient
from firedex.transport.service_follower import ServiceFollower
from firedex.wire import Configuration, Statistics
from firedex_clients.errors import ConnectionRefused, ServiceUnreachable
from firedex_clients.event_loop import EventLoopThread
from firedex_clients.flow import FlowConnection, FlowListener
from firedex_clients.flow_set import FlowSet
from firedex_clients.plan import (
    AddressTranslation,
    ClientPlan,
    PlannedFlow,
    client_plan,
    read_plan,
    unmanaged_plan,
    write_plan,
)
from firedex_clients.registration import Registration, SubscriberDetails, client_errors
from firedex_clients.sn_flow import SnFlow
from firedex_clients.subscriptions import Subscriptions
from firedex_clients.tcp_flow import TcpFlow

__all__ = ["Session", "SessionSettings"]

log = logging.getLogger("firedex.clients")
OPEN_SECONDS = 10.0
"""Timeout for opening all flows."""
CLOSE_SECONDS = 2.0
"""Timeout for closing all connections."""
LAST_REPORT_SECONDS = 2.0
CLOCK_SECONDS = 60.0
"""Time between estimates of the offset of the service's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The arguments of a subscriber."""

    target: HttpTarget
    details: SubscriberDetails
    remove_registration: bool
    broker: tuple[str, int] | None
    translation: AddressTranslation
    plan_file: Path | None
    report_seconds: float
    security: MqttSecurity | None = None


class Session:
    """The state of a subscriber while it is open; all methods run in the event loop."""

    def __init__(
        self,
        settings: SessionSettings,
        subscriptions: Subscriptions,
        thread: EventLoopThread,
        levels: dict[tuple[str, int], int],
    ) -> None:
        self._settings, self._subscriptions, self._thread = settings, subscriptions, thread
        self._id = settings.details.id
        self._service = ServiceClient(settings.target)
        self._registration = Registration(self._service, settings.details)
        self._levels = levels
        self._refusal: Exception | None = None
        self._follower: ServiceFollower | None = None
        self._follower_task: asyncio.Task[None] | None = None
        self._write_task: asyncio.Task[None] | None = None
        self._written_configuration: Configuration | None = None
        self._clock_due = 0.0
        self.flows = FlowSet(
            thread.loop,
            self._make_connection,
            deliver=subscriptions.deliver,
            on_change=self._flows_changed,
            on_refusal=self._flow_refused,
        )
        self.settled = threading.Event()
        """Set while every filter is subscribed on the flow that the plan assigns."""
        self.configuration: Configuration | None = None
        self.clock_offset: ClockOffset | None = None

    # -- opening and closing -----------------------------------------------------------------------

    async def open(self) -> None:
        """Register, or use a known plan; open all flows; follow the service."""
        registered = await self._register_or_read_plan()
        self._apply_plan()
        await self._wait_until_settled()
        await self._write_plan()
        self._follower = ServiceFollower(
            self._service,
            name=self._id,
            on_configuration=self._accept,
            subscriber=self._id,
            register=self._register,
            registered=registered,
            report=self._report,
            report_seconds=self._settings.report_seconds,
            logger=log,
        )
        self._follower_task = asyncio.get_running_loop().create_task(self._follower.run())

    async def close(self) -> None:
        """Send a last report, close all connections, and remove the registration if requested."""
        try:
            if self._follower_task is not None:
                self._follower_task.cancel()
                with suppress(asyncio.CancelledError):
                    await self._follower_task
                with suppress(HttpError, TimeoutError):
                    async with asyncio.timeout(LAST_REPORT_SECONDS):
                        await self._service.post_statistics(self._take_statistics())
        finally:
            await self._close_flows()
            self.settled.clear()
            if self._write_task is not None:
                await self._write_task
            if self._settings.remove_registration:
                await self._registration.remove()
            await self._service.close()

    async def _close_flows(self) -> None:
        connections = self.flows.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        while not all(each.closed for each in connections) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    async def _register_or_read_plan(self) -> Configuration | None:
        """Find the configuration to start with; return it if it comes from the service."""
        try:
            with client_errors():
                self.configuration = await self._register()
        except ServiceUnreachable as error:
            self.configuration = read_plan(self._settings.plan_file)
            if self.configuration is not None:
                fallback = f"using the stored plan, version {self.configuration.version}"
            elif self._settings.broker is not None:
                fallback = "using one unmanaged connection"
            else:
                raise
            log.warning("%s: %s; %s", self._id, error, fallback)
            return None
        return self.configuration

    async def _wait_until_settled(self) -> None:
        deadline = time.monotonic() + OPEN_SECONDS
        while not self.settled.is_set():
            if self._refusal is not None:
                raise self._refusal
            if time.monotonic() > deadline:
                raise ConnectionRefused(
                    f"{self._id}: not all flows could be opened within {OPEN_SECONDS:g} s"
                )
            await asyncio.sleep(0.01)

    # -- plans -------------------------------------------------------------------------------------

    def subscriptions_changed(self) -> None:
        """Apply the changed subscriptions at once, and register them."""
        self._apply_plan()
        if self._follower is not None:
            self._follower.register_again()

    async def _register(self) -> Configuration:
        active = self._subscriptions.all()
        return await self._registration.put(tuple(each.subscription for each in active))

    def _accept(self, configuration: Configuration) -> None:
        has_own_flows = any(flow.subscriber == self._id for flow in configuration.flows)
        if not has_own_flows and self._subscriptions.all():
            return  # this configuration does not include the registration yet
        self.settled.clear()  # before another thread can see the new configuration
        self.configuration = configuration
        if self._write_task is None or self._write_task.done():
            self._write_task = asyncio.get_running_loop().create_task(self._write_plan())
        self._apply_plan()

    async def _write_plan(self) -> None:
        """Write the latest plan in another thread, because the write waits for the disk."""
        path = self._settings.plan_file
        while path is not None and self.configuration is not self._written_configuration:
            self._written_configuration = self.configuration
            if self._written_configuration is not None:
                await asyncio.to_thread(write_plan, path, self._written_configuration)

    def _apply_plan(self) -> None:
        self.settled.clear()
        active = self._subscriptions.all()
        self.flows.apply(self._plan(), {each.filter: each.request() for each in active})
        self._flows_changed()

    def _plan(self) -> ClientPlan:
        active = self._subscriptions.all()
        filters = [each.filter for each in active]
        if self.configuration is not None:
            plan = client_plan(self.configuration, self._id, filters)
            return self._settings.translation.apply(plan)
        host, port = self._settings.broker or ("", 0)
        persistent = any(each.subscription.qos for each in active)
        return unmanaged_plan(host, port, filters, persistent=persistent)

    # -- connections -------------------------------------------------------------------------------

    def _flows_changed(self) -> None:
        if self.flows.settled():
            self.settled.set()
        else:
            self.settled.clear()

    def _flow_refused(self, error: Exception) -> None:
        log.warning("%s: %s", self._id, error)
        self._refusal = error

    def _make_connection(self, flow: PlannedFlow, listener: FlowListener) -> FlowConnection:
        ports = flow.settings.bind_ports
        # While filters move, a flow may have two connections with different ports and client ids.
        client_id = f"{self._id}-{flow.number}" + (f"-{ports[0]}" if ports else "")
        client_id += "-lasting" if flow.persistent else ""
        if flow.settings.transport == "udp":
            return SnFlow(
                self._thread.loop,
                flow.settings,
                listener,
                client_id=client_id,
                persistent=flow.persistent,
            )
        return TcpFlow(
            self._thread.loop,
            flow.settings,
            listener,
            self._thread.connecting,
            client_id=client_id,
            persistent=flow.persistent,
            levels=self._levels,
            security=self._settings.security,
        )

    # -- reports -----------------------------------------------------------------------------------

    async def _report(self) -> None:
        if time.monotonic() >= self._clock_due:
            self._clock_due = time.monotonic() + CLOCK_SECONDS
            with suppress(HttpError):
                self.clock_offset = await self._service.clock_offset()
        if self._follower is not None:
            await self._service.post_heartbeat(self._follower.heartbeat(self._id, "client"))
        statistics = self._take_statistics()
        if statistics:
            await self._service.post_statistics(statistics)

    def _take_statistics(self) -> tuple[Statistics, ...]:
        offset = self.clock_offset
        return self._subscriptions.take_statistics(
            self.flows.flow_number, None if offset is None else offset.seconds
        )
