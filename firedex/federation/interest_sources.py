"""Where a site's interest is learned: the file, its gateway, its service and Mosquitto's log."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from firedex.federation.settings import FederationSite
from firedex.transport.back_off import BackOff
from firedex.transport.broker_link import KEEP_ALIVE_SECONDS, BrokerLevel, BrokerLink
from firedex.transport.http import AsyncHttpClient, HttpTarget
from firedex.transport.mqtt import packets as mqtt
from firedex.transport.mqtt.encoding import PacketType
from firedex.wire.addresses import parse_host_port
from firedex.wire.mqtt_names import check_filter

__all__ = ["BrokerLog", "InterestSources", "without_share"]

log = logging.getLogger("firedex.federation")
WAIT_SECONDS = 10
POLL_SECONDS = 2.0
ANY_QOS = 2
SetInterest = Callable[[str, Mapping[str, int]], None]


def without_share(name: str) -> str | None:
    """Return the filter without ``$share/GROUP/``; None if it is not a valid filter to announce."""
    if name.startswith("$share/"):
        name = name.split("/", 2)[2] if name.count("/") >= 2 else ""
    try:
        return None if name.startswith("$") else check_filter(name)
    except ValueError:
        return None


class BrokerLog:
    """The subscriptions of clients, from the lines that Mosquitto logs. Pure.

    The filters of a client are removed when it disconnects, unless its session is persistent.
    """

    _CONNECTED = re.compile(r"New client connected from \S+ as (\S+) \(p\d, c(\d), ")
    _ENDED = re.compile(
        r"Client (\S+) (?:\[[^]]*\] )?(?:closed its connection|disconnected|has exceeded)"
    )

    def __init__(self, own_client_id: str) -> None:
        self._own = own_client_id
        self._filters: dict[str, dict[str, int]] = {}
        self._persistent: set[str] = set()

    def filters(self) -> dict[str, int]:
        """Return all filters with the highest QoS of each."""
        result: dict[str, int] = {}
        for filters in self._filters.values():
            for name, qos in filters.items():
                result[name] = max(qos, result.get(name, 0))
        return result

    def read(self, kind: str, line: str) -> bool:
        """Handle a log line of one kind (the last levels of its topic); return if it matters."""
        _, _, text = line.partition(": ")
        if kind == "M/subscribe":
            client, _, rest = text.partition(" ")
            qos, _, name = rest.partition(" ")
            name = without_share(name) or ""
            if client.startswith(self._own) or not name or qos not in ("0", "1", "2"):
                return False
            self._filters.setdefault(client, {})[name] = int(qos)
            return True
        if kind == "M/unsubscribe":
            client, _, name = text.partition(" ")
            return self._filters.get(client, {}).pop(without_share(name) or "", None) is not None
        if kind == "N":
            if found := self._CONNECTED.search(text):
                client, clean = found[1], found[2] == "1"
                (self._persistent.discard if clean else self._persistent.add)(client)
                return clean and self._filters.pop(client, None) is not None
            found = self._ENDED.search(text)
            if found and found[1] not in self._persistent:
                return self._filters.pop(found[1].rstrip("."), None) is not None
        return False


class InterestSources:
    """Follows all sources of a site's interest."""

    def __init__(self, site: FederationSite, set_interest: SetInterest, token: str | None) -> None:
        self._site, self._set_interest, self._token = site, set_interest, token
        self._tasks: list[asyncio.Task[None]] = []
        self._states: dict[str, str] = {}
        self._log: _LogSession | None = None

    def start(self) -> None:
        """Set the static filters, and start to follow the other sources."""
        site = self._site
        if site.interest.static:
            self._set_interest("file", dict.fromkeys(site.interest.static, ANY_QOS))
        if site.gateway is not None:
            self._follow("gateway", site.gateway, self._read_gateway)
        if site.service is not None:
            self._follow("service", site.service, self._read_service)
        if site.interest.broker_log and site.broker is not None:
            self._log = _LogSession(site, lambda found: self._set_interest("broker log", found))
            self._states["broker log"] = "ok"

    def followed(self) -> list[str]:
        """Return the names of the sources that report soon after they are followed."""
        sources = {"gateway": self._site.gateway, "service": self._site.service}
        return [name for name, url in sources.items() if url is not None]

    async def close(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._log is not None:
            self._log.close()

    def states(self) -> dict[str, str]:
        """Return the state of each source: ``ok`` or the last error."""
        return dict(self._states)

    def tick(self) -> None:
        """Do what is due by time."""
        if self._log is not None:
            self._log.tick()

    def _follow(
        self, name: str, url: str, read: Callable[[AsyncHttpClient, Any], Awaitable[Any]]
    ) -> None:
        self._states[name] = "not connected yet"
        self._tasks.append(asyncio.create_task(self._keep_reading(name, url, read)))

    async def _keep_reading(
        self, name: str, url: str, read: Callable[[AsyncHttpClient, Any], Awaitable[Any]]
    ) -> None:
        """Read a source repeatedly; its last filters stay in force while it does not answer."""
        back_off = BackOff(0.1, 2.0)
        target = HttpTarget(url=url, token=self._token, timeout_seconds=WAIT_SECONDS + 5.0)
        async with AsyncHttpClient(target) as client:
            position: Any = None
            while True:
                try:
                    position = await read(client, position)
                    back_off.reset()
                    self._states[name] = "ok"
                except Exception as error:  # whatever a source answers, it is asked again
                    if self._states[name] == "ok":
                        log.warning("interest from the %s: %s", name, error)
                    self._states[name] = str(error) or type(error).__name__
                    await asyncio.sleep(back_off.next_seconds())

    async def _read_gateway(self, client: AsyncHttpClient, position: Any) -> Any:
        """Wait for the next change of the gateway's interest."""
        path = "/interest"
        if position is not None:
            instance, version = position
            path += f"?instance={instance}&after={version}&wait_seconds={WAIT_SECONDS}"
        response = await client.request("GET", path)
        report = json.loads(response.body)
        filters = {
            name: int(entry["qos"])
            for entry in report["filters"]
            if (name := without_share(str(entry["filter"]))) is not None
        }
        if report.get("unknown_sessions"):
            # these clients may have subscribed to anything, so everything permitted is requested
            filters["#"] = ANY_QOS
        self._set_interest("gateway", filters)
        return report["instance"], report["version"]

    async def _read_service(self, client: AsyncHttpClient, position: Any) -> Any:
        """Read the registered subscriptions, every two seconds."""
        if position is not None:
            await asyncio.sleep(POLL_SECONDS)
        response = await client.request("GET", "/v1/subscribers")
        content = json.loads(response.body)
        subscribers = content["subscribers"] if isinstance(content, dict) else content
        filters: dict[str, int] = {}
        for subscriber in subscribers:
            for subscription in subscriber.get("subscriptions", ()):
                name = without_share(str(subscription["filter"]))
                if name is not None:
                    filters[name] = max(int(subscription.get("qos", 0)), filters.get(name, 0))
        self._set_interest("service", filters)
        return True


class _LogSession:
    """A session that reads Mosquitto's log topics."""

    def __init__(self, site: FederationSite, changed: Callable[[dict[str, int]], None]) -> None:
        self._address = parse_host_port(site.broker or "")
        self._client_id = f"firedex-federator-{site.id}"
        self._read, self._changed = BrokerLog(self._client_id), changed
        self._level, self._back_off = BrokerLevel(), BackOff(0.1, 2.0)
        self._link: BrokerLink | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connect()

    def _connect(self) -> None:
        self._link = BrokerLink(self._address, self, self._level)

    def tick(self) -> None:
        """Keep the session alive."""
        if self._link is not None:
            self._link.tick(time.monotonic())

    def close(self) -> None:
        """End the session."""
        if self._timer is not None:
            self._timer.cancel()
        if self._link is not None:
            self._link.close()

    def connect_packet(self, level: int) -> bytes:
        """Return the CONNECT packet."""
        return mqtt.encode_connect(
            f"{self._client_id}-log", level=level, keep_alive_seconds=KEEP_ALIVE_SECONDS
        )

    def broker_connected(self) -> None:
        """Subscribe to the log topics."""
        self._back_off.reset()
        if self._link is not None:
            for number, kind in enumerate(("M/subscribe", "M/unsubscribe", "N"), start=1):
                name = f"$SYS/broker/log/{kind}".encode()
                self._link.send(mqtt.encode_subscribe(number, name, 0, level=self._link.level))

    def packet_received(self, packet: bytes) -> None:
        """Handle a log line."""
        if packet[0] >> 4 == PacketType.PUBLISH and self._link is not None:
            message = mqtt.read_publish(packet, level=self._link.level)
            kind = message.topic.decode(errors="replace").removeprefix("$SYS/broker/log/")
            if self._read.read(kind, message.payload.decode(errors="replace")):
                self._changed(self._read.filters())

    def broker_disconnected(self, reason: str, *, refused: bool) -> None:  # noqa: ARG002
        """Connect again after a wait."""
        log.info("the broker's log is not available: %s", reason)
        self._link = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._back_off.next_seconds(), self._connect)
