"""TLS and credentials of MQTT connections, for clients, the gateway and the federator."""

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

__all__ = ["MqttSecurity", "client_context", "explain_handshake", "server_context"]

UNKNOWN_AUTHORITY_CODES = (18, 19, 20, 21)
HOST_MISMATCH_CODES = (62, 64)
"""Results of the verification of a certificate, from ``x509_vfy.h`` of OpenSSL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSecurity:
    """How an MQTT client proves who it is, and how it checks the server.

    With ``tls``, the server must have a certificate of an authority in ``ca_file`` (of the
    operating system, if it is None) for the address that the client connects to. A server that
    requires client certificates gets ``certificate_file``; ``key_file`` is its private key, if the
    file of the certificate does not contain it. Over MQTT-SN, ``tls`` stands for protected
    datagrams (`firedex.transport.mqtt_sn.protection`), whose key is derived from the password.

    Raises ValueError if the fields do not fit together.
    """

    tls: bool = True
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.tls and (self.ca_file or self.certificate_file):
            raise ValueError("a CA file or a client certificate has no effect without TLS")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("a private key needs the certificate that it belongs to")
        if self.password is not None and not self.user:
            raise ValueError("a password needs a user name")

    def with_default_credentials(self, user: str, password: str | None) -> Self:
        """Return these settings with a user name and a password, if they have none and use TLS.

        Without TLS, the password would be readable on the network.
        """
        if self.user is not None or not self.tls or password is None:
            return self
        return replace(self, user=user, password=password)

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None without TLS; raise ValueError if a file is unusable."""
        if not self.tls:
            return None
        return client_context(self.ca_file, self.certificate_file, self.key_file)


def client_context(
    ca_file: Path | None, certificate_file: Path | None = None, key_file: Path | None = None
) -> ssl.SSLContext:
    """Return a context that checks the server; raise ValueError if a file cannot be used."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"{ca_file}: no certificates can be read from this file") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, certificate_file, key_file)
    return context


def server_context(
    certificate_file: Path, key_file: Path | None, client_ca_file: Path | None = None
) -> ssl.SSLContext:
    """Return a context for a listener; with ``client_ca_file``, clients need a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, certificate_file, key_file)
    if client_ca_file is not None:
        try:
            context.load_verify_locations(client_ca_file)
        except OSError as error:
            raise ValueError(
                f"{client_ca_file}: no certificates can be read from this file"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session would skip the check of the client's certificate.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def _load_own(
    context: ssl.SSLContext, certificate_file: Path | None, key_file: Path | None
) -> None:
    if certificate_file is None:
        return
    try:
        context.load_cert_chain(certificate_file, key_file)
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or "the certificate or its private key cannot be read"
        raise ValueError(f"{certificate_file}: {reason}") from error


def explain_handshake(error: OSError) -> str:
    """Return why a TLS handshake failed, with the option that corrects it where possible."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in UNKNOWN_AUTHORITY_CODES:
            return "the certificate of the server was issued by an authority that is not trusted"
        if error.verify_code in HOST_MISMATCH_CODES:
            return f"the certificate of the server is for another address: {error.verify_message}"
        return f"the certificate of the server is invalid: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason in (
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
    ):
        return "the server does not use TLS on this port"
    return str(error) or type(error).__name__
