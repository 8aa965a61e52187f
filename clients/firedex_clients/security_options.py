"""The options of ``firedex sub`` and ``firedex pub`` for TLS and credentials."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from firedex.system.secret_files import password_options
from firedex.transport.mqtt_security import MqttSecurity

__all__ = ["mqtt_security_options", "service_ca_option"]

Command = TypeVar("Command", bound=Callable[..., Any])
PEM_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

service_ca_option = click.option(
    "--service-ca",
    type=PEM_FILE,
    help="PEM file with the certificates to trust for a service at https://.",
)


def mqtt_security_options(command: Command) -> Command:
    """Add the options for a secure MQTT connection; the command gets them as ``security``."""

    @functools.wraps(command)
    def with_security(*arguments: Any, **options: Any) -> Any:
        secure = options.pop("secure")
        files = [options.pop(f"mqtt_{name}") for name in ("ca", "certificate", "key")]
        user, password = options.pop("mqtt_user"), options.pop("mqtt_password")
        tls = secure or any(files)
        try:
            security = MqttSecurity(
                tls=tls,
                # One authority usually issues the certificates of all parts of a site.
                ca_file=(files[0] or options["service_ca"]) if tls else None,
                certificate_file=files[1],
                key_file=files[2],
                user=user,
                password=password,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        used = tls or user is not None
        return command(*arguments, security=security if used else None, **options)

    added: Any = with_security
    for option in (
        password_options("mqtt", "the gateway or broker"),
        click.option(
            "--mqtt-user",
            help="User name for the gateway or broker. Default with --secure: the id of the client "
            "with its API token as password.",
        ),
        click.option(
            "--mqtt-key",
            type=PEM_FILE,
            help="PEM file with the private key, if the file of --mqtt-certificate has none.",
        ),
        click.option(
            "--mqtt-certificate",
            type=PEM_FILE,
            help="PEM file with the client certificate for the gateway or broker.",
        ),
        click.option(
            "--mqtt-ca",
            type=PEM_FILE,
            help="PEM file with the certificates to trust for the gateway or broker. "
            "Default: those of --service-ca.",
        ),
        click.option(
            "--secure",
            is_flag=True,
            help="Connect to the gateway or broker over TLS (tcp) or with protected datagrams "
            "(udp), and authenticate.",
        ),
    ):
        added = option(added)
    return added  # type: ignore[no-any-return]
