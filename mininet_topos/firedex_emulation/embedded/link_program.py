"""Runs the userspace link; learns classes and bandwidths from the service, as a switch would."""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from firedex.scenario_file import read_scenario
from firedex.service_access import ServiceAccess, ServiceAccessError
from firedex.wire import Network, Scenario, WireError, from_plain
from firedex_emulation.embedded.flow_classes import FlowClasses
from firedex_emulation.embedded.link_paths import PortName, port_settings, ports_to
from firedex_emulation.embedded.shaped_path import ShapedPort
from firedex_emulation.embedded.userspace_link import LinkSides, UserspaceLink

__all__ = ["LinkOrders"]

log = logging.getLogger("firedex.emulation.link")
POLL_SECONDS = 0.1
FORGET_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOrders:
    """What the link must know; ``places``: by subscriber, where its sockets leave from and the
    address that it is known by."""

    scenario: str
    service: str
    listen: tuple[str, int]
    gateway: tuple[str, int]
    places: Mapping[str, tuple[str, str]]

    def to_argument(self) -> str:
        """For a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> "LinkOrders":
        """What ``to_argument`` gave."""
        plain = json.loads(text)
        return cls(
            scenario=plain["scenario"],
            service=plain["service"],
            listen=tuple(plain["listen"]),
            gateway=tuple(plain["gateway"]),
            places={name: tuple(place) for name, place in plain["places"].items()},
        )


async def _run(orders: LinkOrders) -> None:
    scenario = read_scenario(orders.scenario)
    ports = {name: ShapedPort(found) for name, found in port_settings(scenario).items()}
    sides = LinkSides(
        listen=orders.listen,
        gateway=orders.gateway,
        known_as=dict(orders.places.values()),
        ports={
            orders.places[each.id][1]: [ports[name] for name in ports_to(scenario.network, each)]
            for each in scenario.subscribers
        },
    )
    ask_now = asyncio.Event()
    classes = FlowClasses()
    link = UserspaceLink(sides, classes, unknown=ask_now.set)
    await link.start()
    tasks = [
        asyncio.create_task(
            _follow(ServiceAccess(orders.service), classes, scenario, ports, ask_now)
        ),
        asyncio.create_task(_forget(link)),
    ]
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    for task in tasks:
        task.cancel()
    link.close()


async def _follow(
    access: ServiceAccess,
    classes: FlowClasses,
    scenario: Scenario,
    ports: Mapping[PortName, ShapedPort],
    ask_now: asyncio.Event,
) -> None:
    """While the service is away, the last configuration stands."""
    etag: str | None = None
    while True:
        try:
            found, etag = await asyncio.to_thread(access.configuration, etag=etag)
            if found is not None:
                classes.follow(found)
                answer = await asyncio.to_thread(access.ask, "GET", "/v1/network")
                network = from_plain(Network, json.loads(answer.body)["network"], tolerant=True)
                present = replace(scenario, network=network)
                for name, settings in port_settings(present).items():
                    ports[name].set_bandwidth(settings.bits_per_second)
        except (ServiceAccessError, WireError, LookupError, ValueError) as error:
            log.debug("going by what is known: %s", error)
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await ask_now.wait()
        ask_now.clear()


async def _forget(link: UserspaceLink) -> None:
    while True:
        await asyncio.sleep(FORGET_SECONDS)
        link.forget_idle()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(_run(LinkOrders.from_argument(sys.argv[1])))
