"""``firedex gateway``."""

import asyncio
import http.client
import logging
import random
from urllib.parse import urlsplit

import click

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.wire import Configuration, WireError, from_json

__all__ = ["gateway"]

log = logging.getLogger("firedex.gateway")
POLL_SECONDS = 0.25
PATIENCE_SECONDS = 5.0


@click.command(
    epilog="Example: firedex gateway --broker 127.0.0.1:1883 --service http://127.0.0.1:8088"
)
@click.option("--listen", default="127.0.0.1:1884", show_default=True, help="Host and port.")
@click.option("--broker", default="127.0.0.1:1883", show_default=True, help="Host and port.")
@click.option("--service", default="http://127.0.0.1:8088", show_default=True, help="URL.")
@click.option("--seed", type=int, help="For the drop coins; without, they differ every time.")
def gateway(listen: str, broker: str, service: str, seed: int | None) -> None:
    """Relay MQTT/TCP between subscribers and the broker; drop events by each flow's drop rate."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    flows = FlowTable()
    coins = random.Random(seed)  # noqa: S311  # coins, not secrets
    relay = Relay(_host_port(broker), flows, coins)
    asyncio.run(_run(relay, flows, _host_port(listen), service))


async def _run(relay: Relay, flows: FlowTable, listen: tuple[str, int], service: str) -> None:
    follow = asyncio.create_task(_follow(flows, service))
    try:
        await relay.serve(*listen)
    finally:
        follow.cancel()


async def _follow(flows: FlowTable, service: str) -> None:
    """Keep to the service's configuration; while it is away, to the last one known."""
    while True:
        configuration = await asyncio.to_thread(_fetch, service)
        if configuration is not None and configuration.version != flows.version:
            flows.follow(configuration)
            log.info("following configuration %d", configuration.version)
        await asyncio.sleep(POLL_SECONDS)


def _fetch(service: str) -> Configuration | None:
    parts = urlsplit(service)
    connection = http.client.HTTPConnection(
        parts.hostname or "127.0.0.1", parts.port or 80, timeout=PATIENCE_SECONDS
    )
    try:
        connection.request("GET", "/v1/configuration")
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            return None
        return from_json(Configuration, body, tolerant=True)
    except (OSError, http.client.HTTPException, WireError) as error:
        log.debug("the service does not answer: %s", error)
        return None
    finally:
        connection.close()


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    return host, int(port)
