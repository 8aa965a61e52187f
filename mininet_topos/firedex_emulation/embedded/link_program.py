"""Program of the userspace link, which polls the service for classes and bandwidths."""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from firedex.scenario import read_scenario
from firedex.transport.http import HttpError, HttpTarget
from firedex.transport.service_client import ServiceClient
from firedex.wire import Scenario
from firedex_emulation.embedded.priority_link import (
    PortName,
    ShapedPort,
    port_settings,
    ports_on_path,
)
from firedex_emulation.embedded.userspace_link import FlowClasses, LinkSides, UserspaceLink

__all__ = ["LinkSettings"]

log = logging.getLogger("firedex.emulation.link")
POLL_SECONDS = 0.1
IDLE_CHECK_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Settings of the link.

    ``subscriber_addresses`` maps a subscriber to the address of its sockets and to the address that
    the gateway sees.
    """

    scenario: str
    service: str
    listen: tuple[str, int]
    gateway: tuple[str, int]
    subscriber_addresses: Mapping[str, tuple[str, str]]

    def to_argument(self) -> str:
        """Return the settings as one command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> "LinkSettings":
        """Return the settings that ``to_argument`` encoded."""
        plain = json.loads(text)
        return cls(
            scenario=plain["scenario"],
            service=plain["service"],
            listen=tuple(plain["listen"]),
            gateway=tuple(plain["gateway"]),
            subscriber_addresses={
                name: tuple(addresses) for name, addresses in plain["subscriber_addresses"].items()
            },
        )


async def _run(settings: LinkSettings) -> None:
    scenario = read_scenario(settings.scenario)
    ports = {name: ShapedPort(each) for name, each in port_settings(scenario).items()}
    sides = LinkSides(
        listen=settings.listen,
        gateway=settings.gateway,
        visible_addresses=dict(settings.subscriber_addresses.values()),
        ports={
            settings.subscriber_addresses[each.id][1]: [
                ports[name] for name in ports_on_path(scenario.network, each)
            ]
            for each in scenario.subscribers
        },
    )
    poll_now = asyncio.Event()
    classes = FlowClasses()
    link = UserspaceLink(sides, classes, on_unknown_flow=poll_now.set)
    await link.start()
    tasks = [
        asyncio.create_task(
            _follow_configuration(
                HttpTarget(url=settings.service), classes, scenario, ports, poll_now
            )
        ),
        asyncio.create_task(_close_idle(link)),
    ]
    stop_requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop_requested.set)
    await stop_requested.wait()
    for task in tasks:
        task.cancel()
    link.close()


async def _follow_configuration(
    service: HttpTarget,
    classes: FlowClasses,
    scenario: Scenario,
    ports: Mapping[PortName, ShapedPort],
    poll_now: asyncio.Event,
) -> None:
    """Poll the service; while it is unreachable, keep the last configuration."""
    etag: str | None = None
    async with ServiceClient(service) as client:
        while True:
            try:
                configuration, etag = await client.configuration(etag=etag)
                if configuration is not None:
                    classes.update(configuration)
                    current = replace(scenario, network=await client.network())
                    for name, settings in port_settings(current).items():
                        ports[name].set_bandwidth(settings.bits_per_second)
            except (HttpError, LookupError, ValueError) as error:
                log.debug("keeping the last configuration: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await poll_now.wait()
            poll_now.clear()


async def _close_idle(link: UserspaceLink) -> None:
    while True:
        await asyncio.sleep(IDLE_CHECK_SECONDS)
        link.close_idle()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(_run(LinkSettings.from_argument(sys.argv[1])))
