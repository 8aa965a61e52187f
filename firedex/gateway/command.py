"""``firedex gateway``."""

import asyncio
import logging
import random
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import prometheus_client
from prometheus_client.registry import CollectorRegistry

from firedex.command_options import HOST_PORT, HTTP_OR_HTTPS_URL
from firedex.gateway.errors import CannotListen, GatewayError
from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.gateway.reports import GatewayMetrics
from firedex.gateway.service_following import REPORT_SECONDS, ServiceFollower
from firedex.gateway.sn_gateway import SnGateway, SnSettings
from firedex.service_access import ServiceAccess

__all__ = ["gateway"]

log = logging.getLogger("firedex.gateway")
Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listening:
    """Where the gateway listens."""

    tcp: Address
    udp: Address | None
    tls: Address | None
    tls_context: ssl.SSLContext | None
    metrics: Address | None


def _predefined(_context: Any, _option: Any, texts: tuple[str, ...]) -> dict[int, str]:
    found: dict[int, str] = {}
    for text in texts:
        number, _, topic = text.partition("=")
        if not number.isdecimal() or not 0 < int(number) < 0xFFFF or not topic:
            raise click.BadParameter(f"{text!r}: write NUMBER=TOPIC, as in 7=smoke/floor1")
        found[int(number)] = topic
    return found


@click.command(
    epilog="Example: firedex gateway --broker 127.0.0.1:1883 --service http://127.0.0.1:8088"
)
@click.option(
    "--listen", type=HOST_PORT, default="127.0.0.1:1884", show_default=True, help="For subscribers."
)
@click.option("--udp-listen", type=HOST_PORT, help="For MQTT-SN 1.2 over UDP.")
@click.option("--tls-listen", type=HOST_PORT, help="For subscribers with TLS, which ends here.")
@click.option("--tls-certificate", type=click.Path(exists=True, path_type=Path), help="PEM.")
@click.option("--tls-key", type=click.Path(exists=True, path_type=Path), help="PEM.")
@click.option(
    "--broker", type=HOST_PORT, default="127.0.0.1:1883", show_default=True, help="Relayed to."
)
@click.option(
    "--service",
    type=HTTP_OR_HTTPS_URL,
    default="http://127.0.0.1:8088",
    show_default=True,
    help="To follow.",
)
@click.option("--token", help="For the service.")
@click.option("--service-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="For a service at https://: whom to trust, PEM.")  # fmt: skip
@click.option("--metrics", type=HOST_PORT, help="Where Prometheus may ask.")
@click.option(
    "--buffer-bytes", type=click.IntRange(min=1024), default=131_072, show_default=True,
    help="What may wait for one flow.",
)  # fmt: skip
@click.option(
    "--buffer-seconds", type=click.FloatRange(min=0.001), default=1.0, show_default=True,
    help="How long an event at QoS 0 may wait.",
)  # fmt: skip
@click.option(
    "--predefined", multiple=True, callback=_predefined, metavar="NUMBER=TOPIC",
    help="A topic id that MQTT-SN clients know beforehand; may be repeated.",
)  # fmt: skip
@click.option("--gateway-id", type=click.IntRange(0, 255), default=1, show_default=True,
              help="As MQTT-SN clients that search are told.")  # fmt: skip
@click.option("--advertise", type=HOST_PORT, help="Where to advertise the MQTT-SN gateway.")
@click.option("--report-seconds", type=click.FloatRange(min=0.1), default=REPORT_SECONDS,
              show_default=True, help="Between reports to the service.")  # fmt: skip
@click.option("--seed", type=int, help="For the drop coins; without, they differ every time.")
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
    buffer_bytes: int,
    buffer_seconds: float,
    predefined: dict[int, str],
    gateway_id: int,
    advertise: Address | None,
    report_seconds: float,
    seed: int | None,
) -> None:
    """Relay MQTT between subscribers and the broker; drop events by each flow's drop rate.

    MQTT over TCP passes as it is; with --udp-listen, MQTT-SN 1.2 clients are served too.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    context = None
    if tls_listen is not None:
        if tls_certificate is None:
            raise click.UsageError("--tls-listen needs --tls-certificate (and --tls-key)")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(tls_certificate, tls_key)
        except OSError as error:
            raise click.UsageError(f"--tls-certificate {tls_certificate}: {error}") from error
    flows = FlowTable()
    coins = random.Random(seed)  # noqa: S311  # coins, not secrets
    limits = BufferLimits(bytes=buffer_bytes, seconds=buffer_seconds)
    relay = Relay(broker, flows, coins, limits=limits)
    settings = SnSettings(
        broker=broker,
        gateway_id=gateway_id,
        predefined=predefined,
        advertise=advertise,
        limits=limits,
    )
    sensors = SnGateway(settings, flows, coins)
    listening = _Listening(
        tcp=listen, udp=udp_listen, tls=tls_listen, tls_context=context, metrics=metrics
    )
    try:
        access = ServiceAccess(service, token, ca_file=service_ca)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        asyncio.run(_run(relay, sensors, listening, access, report_seconds))
    except KeyboardInterrupt:
        pass
    except GatewayError as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)


@contextmanager
def _listening_at(option: str, address: Address) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotListen(f"{option} {address[0]}:{address[1]}: {error}") from error


async def _run(
    relay: Relay,
    sensors: SnGateway,
    listening: _Listening,
    access: ServiceAccess,
    report_seconds: float,
) -> None:
    loop = asyncio.get_running_loop()

    def in_loop(action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(action)

    follower = ServiceFollower(
        access, relay.flows, in_loop, report_seconds=report_seconds, broker=relay.broker
    )
    async with AsyncExitStack() as running:
        follower.start()
        running.push_async_callback(asyncio.to_thread, follower.stop)
        if listening.tls is not None:
            with _listening_at("--tls-listen", listening.tls):
                server = await relay.start(*listening.tls, tls=listening.tls_context)
            running.callback(server.close)
        if listening.udp is not None:
            with _listening_at("--udp-listen", listening.udp):
                await sensors.start(*listening.udp)
            running.push_async_callback(sensors.close)
        if listening.metrics is not None:
            with _listening_at("--metrics", listening.metrics):
                _serve_metrics(relay, sensors, listening.metrics, running)
        serving = asyncio.create_task(relay.serve(*listening.tcp))
        loop.add_signal_handler(signal.SIGTERM, serving.cancel)
        with suppress(asyncio.CancelledError), _listening_at("--listen", listening.tcp):
            await serving


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

    metrics = GatewayMetrics(relay.flows, gauges)
    metrics.unmanaged = {"tcp": relay.unmanaged, "udp": sensors.unmanaged}
    registry = CollectorRegistry()
    registry.register(metrics)
    server, _ = prometheus_client.start_http_server(address[1], addr=address[0], registry=registry)
    running.callback(server.server_close)
    running.callback(server.shutdown)
