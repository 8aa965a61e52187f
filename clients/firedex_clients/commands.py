"""The commands ``firedex sub`` and ``firedex pub``."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urlsplit

import click

from firedex.system.options import HOST_PORT, HTTP_OR_HTTPS_URL
from firedex.system.secret_files import token_options
from firedex.transport.mqtt_security import MqttSecurity
from firedex.wire import Configuration, LogUtility
from firedex.wire.mqtt_names import check_filter
from firedex_clients.errors import ClientError
from firedex_clients.events import Event, EventStream
from firedex_clients.publisher import Publisher
from firedex_clients.security_options import mqtt_security_options, service_ca_option
from firedex_clients.subscriber import Subscriber

__all__ = ["pub", "sub"]


def _check_folder_exists(
    _context: click.Context, _option: click.Parameter, path: Path | None
) -> Path | None:
    """Reject a path whose folder does not exist, before events are received."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"{path.parent} is not a folder")
    return path


@click.command(
    short_help="Subscribe and print events.",
    epilog="Example: firedex sub 'smoke/#' --utility 10 -v",
)
@click.argument("filters", nargs=-1, metavar="FILTER...")
@click.option(
    "--utility",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Weight of the logarithmic utility of the subscriptions.",
)
@click.option(
    "--service",
    type=HTTP_OR_HTTPS_URL,
    default="http://127.0.0.1:8088",
    show_default=True,
    help="URL of the configuration service.",
)
@token_options
@service_ca_option
@mqtt_security_options
@click.option(
    "--broker",
    metavar="HOST:PORT",
    help="Address of a broker for one unmanaged connection if the service is unreachable.",
)
@click.option("--id", "name", help="Id of this subscriber. Default: a generated id.")
@click.option(
    "--switch", default="core", show_default=True, help="Switch this host is attached to."
)
@click.option(
    "--address",
    help="IPv4 address from which this host reaches the gateway. Default: detected.",
)
@click.option("--role", default="crew", show_default=True, help="Role of this subscriber.")
@click.option(
    "--transport",
    type=click.Choice(["tcp", "udp"]),
    default="tcp",
    show_default=True,
    help="Transport of the flows: tcp (MQTT) or udp (MQTT-SN).",
)
@click.option(
    "-q",
    "--qos",
    type=click.IntRange(0, 2),
    default=0,
    show_default=True,
    help="QoS of the subscriptions.",
)
@click.option(
    "--deadline-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Delay within which 95 % of the events of each subscription must arrive.",
)
@click.option("-C", "--count", type=click.IntRange(min=1), help="Exit after this number of events.")
@click.option(
    "-W", "--wait-seconds", type=click.FloatRange(min=0), help="Exit after this number of seconds."
)
@click.option("-v", "--verbose", is_flag=True, help="Also print topic, flow, priority and delay.")
@click.option(
    "--records",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_check_folder_exists,
    help="Write delivery records to this Parquet file.",
)
@click.option("--topics", "list_topics", is_flag=True, help="List all topics and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each event.")
def sub(
    filters: tuple[str, ...],
    utility: float,
    service: str,
    token: str | None,
    service_ca: Path | None,
    security: MqttSecurity | None,
    broker: str | None,
    name: str | None,
    switch: str,
    address: str | None,
    role: str,
    transport: str,
    qos: int,
    deadline_seconds: float | None,
    count: int | None,
    wait_seconds: float | None,
    verbose: bool,
    records: Path | None,
    list_topics: bool,
    as_json: bool,
) -> None:
    """Subscribe to each FILTER with a utility, and print the events that arrive.

    The options follow mosquitto_sub: the exit code is 27 if --wait-seconds ends before --count.
    """
    if not filters and not list_topics:
        raise click.UsageError("give at least one FILTER, or --topics")
    name_is_generated = name is None
    name = name or f"{socket.gethostname().split('.')[0]}-{time.time_ns() % 10**9}"
    recorded_events: list[Event] = []
    received_count = 0
    subscriber: Subscriber | None = None
    try:
        subscriber = Subscriber(
            service,
            id=name,
            switch=switch,
            address=address or _own_address(service),
            role=role,
            transport="udp" if transport == "udp" else "tcp",
            token=token,
            service_ca=service_ca,
            security=security,
            broker=broker,
            remove_registration=name_is_generated,  # a generated id is not used again
        )
        if list_topics:
            _print_line("\n".join(subscriber.topics()))
            return
        stream = EventStream()
        for each in filters:
            subscriber.subscribe(
                check_filter(each),
                utility=LogUtility(weight=utility),
                on_event=stream.put,
                qos=qos,
                deadline_seconds=deadline_seconds,
            )
        with _exit_on_sigterm(), subscriber:
            deadline = None if wait_seconds is None else time.monotonic() + wait_seconds
            while count is None or received_count < count:
                remaining_seconds = (
                    None if deadline is None else max(deadline - time.monotonic(), 0.0)
                )
                event = stream.take(remaining_seconds)
                if event is None:
                    break
                received_count += 1
                recorded_events += [event] if records is not None else []
                _print_line(_as_json(event) if as_json else _as_text(event, verbose=verbose))
    except (ClientError, ValueError) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        pass
    finally:  # also after SIGTERM
        if records is not None and subscriber is not None:
            _write_records(records, recorded_events, name, subscriber.configuration, transport)
    if count is not None and received_count < count:
        sys.exit(27)


def _write_records(
    path: Path, events: Sequence[Event], name: str, plan: Configuration | None, transport: str
) -> None:
    from firedex_clients.delivery_log import delivery_record, write_records

    location = {} if plan is None else {"site": plan.site, "broker": plan.broker}
    records = [delivery_record(event, name, transport=transport, **location) for event in events]
    write_records(path, records)


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Exit on SIGTERM through an exception, so that the subscriber is closed."""

    def exit_process(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    previous_handler = signal.signal(signal.SIGTERM, exit_process)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _print_line(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _own_address(service: str) -> str:
    """Return the local address that this machine uses to reach the service."""
    host = urlsplit(service).hostname or "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError as error:
            raise ClientError(
                f"no route to {host}: {error}; give the address of this host with --address"
            ) from error
        return str(IPv4Address(probe.getsockname()[0]))


def _as_text(event: Event, *, verbose: bool) -> str:
    payload = event.payload.decode("utf-8", "backslashreplace")
    if not verbose:
        return payload
    delay = event.delay_seconds
    delay_text = "delay unknown" if delay is None else f"{delay * 1e3:.1f} ms"
    location = f"flow {event.flow} priority {event.priority}" if event.managed else "unmanaged"
    retained = " retained" if event.retained else ""
    return f"{event.topic} [{location}, {delay_text}{retained}] {payload}"


def _as_json(event: Event) -> str:
    return json.dumps(
        {
            "topic": event.topic,
            "filter": event.filter,
            "payload": event.payload.decode("utf-8", "backslashreplace"),
            "flow": event.flow if event.managed else None,
            "priority": event.priority if event.managed else None,
            "configuration_version": event.configuration_version,
            "event_id": event.event_id,
            "delay_seconds": event.delay_seconds,
            "qos": event.qos,
            "retained": event.retained,
        }
    )


@click.command(
    short_help="Publish events.", epilog="Example: firedex pub smoke/floor1 -m '21 C' --qos 1"
)
@click.argument("topic")
@click.option(
    "-m",
    "--message",
    help="Payload of the event. Default: each line of standard input is an event.",
)
@click.option(
    "--broker",
    type=HOST_PORT,
    default="127.0.0.1:1883",
    show_default=True,
    help="Address of the broker, or with --transport udp the MQTT-SN address of the gateway.",
)
@click.option("--id", "name", help="Id of this publisher. Default: a generated id.")
@click.option(
    "-q",
    "--qos",
    type=click.IntRange(0, 2),
    default=0,
    show_default=True,
    help="QoS of the events.",
)
@click.option("-r", "--retain", is_flag=True, help="Publish the events as retained messages.")
@click.option(
    "--mqtt",
    "version",
    type=click.Choice(["5", "3.1.1"]),
    default="5",
    show_default=True,
    help="MQTT version of the connection over TCP.",
)
@click.option(
    "--transport",
    type=click.Choice(["tcp", "udp"]),
    default="tcp",
    show_default=True,
    help="Transport of the events: tcp (MQTT) or udp (MQTT-SN).",
)
@click.option("--unstamped", is_flag=True, help="Send the payload without an event stamp.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of times to publish the payload given with --message.",
)
@click.option(
    "--service",
    type=HTTP_OR_HTTPS_URL,
    help="URL of the configuration service to register the topic with.",
)
@click.option(
    "--switch", default="core", show_default=True, help="Switch this host is attached to."
)
@click.option(
    "--rate", type=click.FloatRange(min=0), help="Declared rate of the topic in events per second."
)
@token_options
@service_ca_option
@mqtt_security_options
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
    security: MqttSecurity | None,
) -> None:
    """Publish events to TOPIC; the options follow mosquitto_pub.

    Each event carries a stamp with stream id, sequence number and time.
    """
    try:
        publisher = Publisher(
            *broker,
            id=name or default_publisher_id(),
            version=version,
            transport="udp" if transport == "udp" else "tcp",
            stamped=not unstamped,
            service_url=service,
            switch=switch,
            token=token,
            service_ca=service_ca,
            security=security,
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


def default_publisher_id() -> str:
    """Return an id for this process; a broker disconnects a client if another has the same id."""
    return f"firedex-pub-{socket.gethostname().split('.')[0]}-{os.getpid()}"
