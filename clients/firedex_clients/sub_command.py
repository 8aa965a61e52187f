"""``firedex sub``: events of a filter, printed as they come."""

import json
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

from firedex.command_options import HTTP_OR_HTTPS_URL
from firedex.wire import Configuration, LogUtility
from firedex.wire.mqtt_names import check_filter
from firedex_clients.errors import ClientError
from firedex_clients.event import Event
from firedex_clients.event_stream import EventStream
from firedex_clients.subscriber import Subscriber

__all__ = ["sub"]


def _in_a_folder(
    _context: click.Context, _option: click.Parameter, path: Path | None
) -> Path | None:
    """Told now, and not when there is something to write."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"{path.parent} is no folder")
    return path


@click.command(
    short_help="Subscribe and print events.",
    epilog="Example: firedex sub 'smoke/#' --utility 10 -v",
)
@click.argument("filters", nargs=-1, metavar="FILTER...")
@click.option("--utility", type=click.FloatRange(min=0, min_open=True), default=1.0,
              show_default=True, help="What they are worth: a logarithm's weight.")  # fmt: skip
@click.option("--service", type=HTTP_OR_HTTPS_URL, default="http://127.0.0.1:8088",
              show_default=True, help="The configuration service.")  # fmt: skip
@click.option("--token", help="For the service.")
@click.option("--service-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="For a service at https://: whom to trust, PEM.")  # fmt: skip
@click.option("--broker", metavar="HOST:PORT",
              help="Where one plain connection goes while there never was a service.")  # fmt: skip
@click.option("--id", "name", help="Of this subscriber; by default of the machine and process.")
@click.option("--switch", default="core", show_default=True, help="That this machine is behind.")
@click.option("--address", help="Of this machine towards the gateway; by default found out.")
@click.option("--role", default="crew", show_default=True)
@click.option("--transport", type=click.Choice(["tcp", "udp"]), default="tcp", show_default=True)
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("--deadline-seconds", type=click.FloatRange(min=0, min_open=True))
@click.option("-C", "--count", type=click.IntRange(min=1), help="End after so many events.")
@click.option("-W", "--wait-seconds", type=click.FloatRange(min=0), help="End after so long.")
@click.option("-v", "--verbose", is_flag=True, help="Topic, flow, priority and delay too.")
@click.option("--records", type=click.Path(dir_okay=False, path_type=Path), callback=_in_a_folder,
              help="Write delivery records (Parquet) there.")  # fmt: skip
@click.option("--topics", "list_topics", is_flag=True, help="List the topics there are, and end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each event.")
def sub(
    filters: tuple[str, ...],
    utility: float,
    service: str,
    token: str | None,
    service_ca: Path | None,
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

    In the manner of mosquitto_sub; exit code 27 if the wait ends before the count, as there.
    """
    if not filters and not list_topics:
        raise click.UsageError("name at least one FILTER, or ask for --topics")
    made_up = name is None
    name = name or f"{socket.gethostname().split('.')[0]}-{time.time_ns() % 10**9}"
    kept: list[Event] = []
    taken = 0
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
            broker=broker,
            sign_off=made_up,  # nobody comes back by that name
        )
        if list_topics:
            _say("\n".join(subscriber.topics()))
            return
        one = EventStream()
        for each in filters:
            subscriber.subscribe(
                check_filter(each),
                utility=LogUtility(weight=utility),
                on_event=one.put,
                qos=qos,
                deadline_seconds=deadline_seconds,
            )
        with _unwinding_on_sigterm(), subscriber:
            until = None if wait_seconds is None else time.monotonic() + wait_seconds
            while count is None or taken < count:
                left = None if until is None else max(until - time.monotonic(), 0.0)
                event = one.take(left)
                if event is None:
                    break
                taken += 1
                kept += [event] if records is not None else []
                _say(_as_json(event) if as_json else _as_text(event, verbose=verbose))
    except (ClientError, ValueError) as error:
        click.echo(f"firedex: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        pass
    finally:  # however it ends, also by SIGTERM
        if records is not None and subscriber is not None:
            _write(records, kept, name, subscriber.configuration, transport)
    if count is not None and taken < count:
        sys.exit(27)


def _write(
    path: Path, events: Sequence[Event], name: str, plan: Configuration | None, transport: str
) -> None:
    from firedex_clients.delivery_log import record_of, write_records

    place = {} if plan is None else {"site": plan.site, "broker": plan.broker}
    records = [record_of(event, name, transport=transport, **place) for event in events]
    write_records(path, records)


@contextmanager
def _unwinding_on_sigterm() -> Iterator[None]:
    """So that the subscriber says goodbye."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _own_address(service: str) -> str:
    """The address that this machine has towards the service."""
    host = urlsplit(service).hostname or "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError as error:
            raise ClientError(f"no way to {host}: {error}; give --address") from error
        return str(IPv4Address(probe.getsockname()[0]))


def _as_text(event: Event, *, verbose: bool) -> str:
    payload = event.payload.decode("utf-8", "backslashreplace")
    if not verbose:
        return payload
    delay = event.delay_seconds
    shown = "delay unknown" if delay is None else f"{delay * 1e3:.1f} ms"
    place = f"flow {event.flow} priority {event.priority}" if event.managed else "unmanaged"
    retained = " retained" if event.retained else ""
    return f"{event.topic} [{place}, {shown}{retained}] {payload}"


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
