"""``firedex pub``: events published from the command line."""

import os
import socket
import sys
from pathlib import Path

import click

from firedex.command_options import HOST_PORT, HTTP_OR_HTTPS_URL
from firedex_clients.errors import ClientError
from firedex_clients.publisher import Publisher

__all__ = ["pub"]


@click.command(
    short_help="Publish events.", epilog="Example: firedex pub smoke/floor1 -m '21 C' --qos 1"
)
@click.argument("topic")
@click.option("-m", "--message", help="The payload; without, every line of the input is an event.")
@click.option("--broker", type=HOST_PORT, default="127.0.0.1:1883", show_default=True,
              help="With --transport udp, the gateway's MQTT-SN port.")  # fmt: skip
@click.option("--id", "name", help="Of this publisher; by default of the process.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("-r", "--retain", is_flag=True)
@click.option("--mqtt", "version", type=click.Choice(["5", "3.1.1"]), default="5",
              show_default=True)  # fmt: skip
@click.option("--transport", type=click.Choice(["tcp", "udp"]), default="tcp", show_default=True)
@click.option("--unstamped", is_flag=True, help="Send the payload alone: no id, no time.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--service", type=HTTP_OR_HTTPS_URL, help="To declare the topic to, with --rate.")
@click.option("--switch", default="core", show_default=True, help="That this machine is behind.")
@click.option("--rate", type=click.FloatRange(min=0), help="Events a second, to be planned for.")
@click.option("--token", help="For the service.")
@click.option("--service-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="For a service at https://: whom to trust, PEM.")  # fmt: skip
def pub(
    topic: str,
    message: str | None,
    broker: tuple[str, int],
    name: str | None,
    qos: int,
    retain: bool,
    version: str,
    transport: str,
    unstamped: bool,
    repeat: int,
    service: str | None,
    switch: str,
    rate: float | None,
    token: str | None,
    service_ca: Path | None,
) -> None:
    """Publish to TOPIC, stamped with id and time; in the manner of mosquitto_pub."""
    try:
        publisher = Publisher(
            *broker,
            id=name or default_name(),
            version=version,
            transport="udp" if transport == "udp" else "tcp",
            stamped=not unstamped,
            service_url=service,
            switch=switch,
            token=token,
            service_ca=service_ca,
        )
        if rate is not None:
            size = len((message or "").encode())
            publisher.declare(topic, event_bytes=size, rate_per_second=rate)
        with publisher:
            if message is not None:
                for _ in range(repeat):
                    publisher.publish(topic, message.encode(), qos=qos, retain=retain)
            else:
                for line in sys.stdin.buffer:
                    publisher.publish(topic, line.rstrip(b"\n"), qos=qos, retain=retain)
    except (ClientError, ValueError) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)


def default_name() -> str:
    """Another for each process: of two with one name, a broker throws the first out."""
    return f"firedex-pub-{socket.gethostname().split('.')[0]}-{os.getpid()}"
