"""``firedex gateway``: run the gateway beside a broker."""

import asyncio
import logging
import random
import signal
import ssl
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import prometheus_client
from prometheus_client.registry import CollectorRegistry

from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import FlowTable
from firedex.gateway.interest import InterestTable
from firedex.gateway.interest_service import open_interest_table, running_interest
from firedex.gateway.interest_store import InterestStore, StateFileError
from firedex.gateway.relay import Relay
from firedex.gateway.reports import GatewayMetrics, service_follower
from firedex.gateway.sn_gateway import SnGateway, SnSettings
from firedex.system.options import HOST_PORT, HTTP_OR_HTTPS_URL
from firedex.transport.http import HttpTarget
from firedex.transport.service_client import ServiceClient
from firedex.transport.service_follower import REPORT_SECONDS

__all__ = ["gateway"]

log = logging.getLogger("firedex.gateway")
Address = tuple[str, int]


class CannotListen(Exception):
    """The gateway cannot listen on an address, for example because it is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listeners:
    """The addresses the gateway listens on."""

    tcp: Address
    udp: Address | None
    tls: Address | None
    tls_context: ssl.SSLContext | None
    metrics: Address | None
    interest: Address | None


def _parse_predefined_topics(_context: Any, _option: Any, texts: tuple[str, ...]) -> dict[int, str]:
    topics: dict[int, str] = {}
    for text in texts:
        number, _, topic = text.partition("=")
        if not number.isdecimal() or not 0 < int(number) < 0xFFFF or not topic:
            raise click.BadParameter(
                f"{text!r} is not NUMBER=TOPIC with a number from 1 to 65534,"
                " for example 7=smoke/floor1"
            )
        topics[int(number)] = topic
    return topics


@click.command(
    epilog="Example: firedex gateway --broker 127.0.0.1:1883 --service http://127.0.0.1:8088"
)
@click.option("--listen", type=HOST_PORT, default="127.0.0.1:1884", show_default=True,
              help="Address on which to accept MQTT connections over TCP.")  # fmt: skip
@click.option("--udp-listen", type=HOST_PORT,
              help="Address on which to accept MQTT-SN 1.2 over UDP.")  # fmt: skip
@click.option("--tls-listen", type=HOST_PORT,
              help="Address on which to accept MQTT connections over TLS.")  # fmt: skip
@click.option("--tls-certificate", type=click.Path(exists=True, path_type=Path),
              help="PEM file with the certificate chain for --tls-listen.")  # fmt: skip
@click.option("--tls-key", type=click.Path(exists=True, path_type=Path),
              help="PEM file with the private key, if the certificate file has none.")  # fmt: skip
@click.option("--broker", type=HOST_PORT, default="127.0.0.1:1883", show_default=True,
              help="Address of the MQTT broker.")  # fmt: skip
@click.option("--service", type=HTTP_OR_HTTPS_URL, default="http://127.0.0.1:8088",
              show_default=True, help="URL of the configuration service.")  # fmt: skip
@click.option("--token", help="API token for the configuration service.")
@click.option("--service-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="PEM file with the CA certificates to trust, for an https service.")  # fmt: skip
@click.option("--metrics", type=HOST_PORT,
              help="Address on which to serve Prometheus metrics over HTTP.")  # fmt: skip
@click.option("--interest", type=HOST_PORT,
              help="Address of an HTTP interface that lists the topic filters of all clients. "
                   "A federator reads it to exchange events with other sites.")  # fmt: skip
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path),
              help="SQLite file with the topic filters of persistent sessions, so that they are "
                   "known after a restart.")  # fmt: skip
@click.option("--buffer-bytes", type=click.IntRange(min=1024), default=131_072, show_default=True,
              help="Size of the send buffer of each flow in bytes.")  # fmt: skip
@click.option("--buffer-seconds", type=click.FloatRange(min=0.001), default=1.0, show_default=True,
              help="Seconds after which a QoS 0 event in a buffer is discarded.")  # fmt: skip
@click.option("--predefined", multiple=True, callback=_parse_predefined_topics,
              metavar="NUMBER=TOPIC",
              help="Pre-defined MQTT-SN topic id and its topic; may be repeated.")  # fmt: skip
@click.option("--gateway-id", type=click.IntRange(0, 255), default=1, show_default=True,
              help="Gateway id that MQTT-SN clients receive in GWINFO and ADVERTISE.")  # fmt: skip
@click.option("--advertise", type=HOST_PORT,
              help="Address to which to send MQTT-SN ADVERTISE messages.")  # fmt: skip
@click.option("--report-seconds", type=click.FloatRange(min=0.1), default=REPORT_SECONDS,
              show_default=True, help="Seconds between reports to the service.")  # fmt: skip
@click.option("--seed", type=int,
              help="Seed of the random numbers that select the dropped events. "
              "Default: a random seed.")  # fmt: skip
def gateway(
    listen: Address,
    udp_listen: Address | None,
    tls_listen: Address | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    broker: Address,
    service: str,
    token: str | None,
    service_ca: Path | None,
    metrics: Address | None,
    interest: Address | None,
    state: Path | None,
    buffer_bytes: int,
    buffer_seconds: float,
    predefined: dict[int, str],
    gateway_id: int,
    advertise: Address | None,
    report_seconds: float,
    seed: int | None,
) -> None:
    """Relay MQTT between subscribers and the broker, and drop events at each flow's drop rate.

    All other MQTT packets over TCP pass unchanged. With --udp-listen the gateway also serves
    MQTT-SN 1.2 clients.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    # httpx logs each request at level INFO.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    flows = FlowTable()
    generator = random.Random(seed)  # noqa: S311  # drops need no cryptographic randomness
    limits = BufferLimits(bytes=buffer_bytes, seconds=buffer_seconds)
    store, table = _open_interest(interest, state)
    relay = Relay(broker, flows, generator, limits=limits, interest=table)
    settings = SnSettings(
        broker=broker,
        gateway_id=gateway_id,
        predefined=predefined,
        advertise=advertise,
        limits=limits,
    )
    sensors = SnGateway(settings, flows, generator, table)
    listeners = _Listeners(
        tcp=listen,
        udp=udp_listen,
        tls=tls_listen,
        tls_context=_load_tls_context(tls_listen, tls_certificate, tls_key),
        metrics=metrics,
        interest=interest,
    )
    try:
        target = HttpTarget(url=service, token=token, ca_file=service_ca)
        target.options()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        asyncio.run(_run(relay, sensors, listeners, target, report_seconds, store))
    except KeyboardInterrupt:
        pass
    except CannotListen as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)


def _load_tls_context(
    address: Address | None, certificate: Path | None, key: Path | None
) -> ssl.SSLContext | None:
    if address is None:
        return None
    if certificate is None:
        raise click.UsageError("--tls-listen requires --tls-certificate")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise click.UsageError(f"--tls-certificate {certificate}: {error}") from error
    return context


def _open_interest(
    interest: Address | None, state: Path | None
) -> tuple[InterestStore | None, InterestTable | None]:
    if state is None:
        return None, None if interest is None else open_interest_table(None)
    try:
        store = InterestStore(state)
    except StateFileError as error:
        raise click.UsageError(f"--state: {error}") from error
    return store, open_interest_table(store)


@contextmanager
def _report_listen_errors(option: str, address: Address | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if address is None:
            raise
        raise CannotListen(
            f"{option}: cannot listen on {address[0]}:{address[1]}: {error}"
        ) from error


async def _run(
    relay: Relay,
    sensors: SnGateway,
    listeners: _Listeners,
    target: HttpTarget,
    report_seconds: float,
    store: InterestStore | None,
) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as running:
        if relay.interest is not None:
            # Closed last, so that the end of every connection is recorded.
            with _report_listen_errors("--interest", listeners.interest):
                await running.enter_async_context(
                    running_interest(relay.interest, store, listeners.interest)
                )
        service = await running.enter_async_context(ServiceClient(target))
        follower = service_follower(
            service, relay.flows, broker=relay.broker, report_seconds=report_seconds
        )
        follower_task = asyncio.create_task(follower.run())
        running.push_async_callback(_cancel, follower_task)
        if listeners.tls is not None:
            with _report_listen_errors("--tls-listen", listeners.tls):
                server = await relay.start(*listeners.tls, tls=listeners.tls_context)
            running.callback(server.close)
        if listeners.udp is not None:
            with _report_listen_errors("--udp-listen", listeners.udp):
                await sensors.start(*listeners.udp)
            running.push_async_callback(sensors.close)
        if listeners.metrics is not None:
            with _report_listen_errors("--metrics", listeners.metrics):
                _serve_metrics(relay, sensors, listeners.metrics, running)
        server_task = asyncio.create_task(relay.serve(*listeners.tcp))
        loop.add_signal_handler(signal.SIGTERM, server_task.cancel)
        with suppress(asyncio.CancelledError), _report_listen_errors("--listen", listeners.tcp):
            await server_task


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _serve_metrics(
    relay: Relay, sensors: SnGateway, address: Address, running: AsyncExitStack
) -> None:
    def gauges() -> dict[str, dict[str, float]]:
        return {
            "connections": {"tcp": len(relay.connections), "udp": len(sensors.clients)},
            "refused_connections": {
                "tcp": relay.refused_connections,
                "udp": sensors.refused_datagrams,
            },
        }

    unmanaged = {"tcp": relay.unmanaged, "udp": sensors.unmanaged}
    registry = CollectorRegistry()
    registry.register(GatewayMetrics(relay.flows, unmanaged, gauges))
    server, _ = prometheus_client.start_http_server(address[1], addr=address[0], registry=registry)
    running.callback(server.server_close)
    running.callback(server.shutdown)
