"""``firedex gateway``."""

import asyncio
import http.client
import logging
import random

import click

from firedex.command_options import HOST_PORT, HTTP_URL
from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.wire import Configuration, WireError, from_json
from firedex.wire.addresses import http_address

__all__ = ["gateway"]

log = logging.getLogger("firedex.gateway")
POLL_SECONDS = 0.25
PATIENCE_SECONDS = 5.0


@click.command(
    epilog="Example: firedex gateway --broker 127.0.0.1:1883 --service http://127.0.0.1:8088"
)
@click.option(
    "--listen", type=HOST_PORT, default="127.0.0.1:1884", show_default=True, help="For subscribers."
)
@click.option(
    "--broker", type=HOST_PORT, default="127.0.0.1:1883", show_default=True, help="Relayed to."
)
@click.option(
    "--service",
    type=HTTP_URL,
    default="http://127.0.0.1:8088",
    show_default=True,
    help="To follow.",
)
@click.option("--seed", type=int, help="For the drop coins; without, they differ every time.")
def gateway(
    listen: tuple[str, int], broker: tuple[str, int], service: str, seed: int | None
) -> None:
    """Relay MQTT/TCP between subscribers and the broker; drop events by each flow's drop rate."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    flows = FlowTable()
    coins = random.Random(seed)  # noqa: S311  # coins, not secrets
    asyncio.run(_run(Relay(broker, flows, coins), flows, listen, service))


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
    connection = http.client.HTTPConnection(*http_address(service), timeout=PATIENCE_SECONDS)
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
