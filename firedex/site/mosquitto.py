"""The files of Mosquitto: configuration, passwords and access control list. Pure.

Without security, every local client may do everything. With security, a connection needs TLS, a
user name and a password; only parts of the site have one, and clients connect to the gateway.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BrokerSecurity", "access_control_list", "mosquitto_configuration", "password_file"]

CONFIGURATION = """\
listener {port} {host}
{access}
persistence true
persistence_location {folder}/
set_tcp_nodelay true
max_queued_messages 1000
log_type error
log_type warning
user {user}
"""
"""The line ``user`` keeps Mosquitto from changing its user; otherwise it outlives its parent."""
SECURE_ACCESS = """\
allow_anonymous false
password_file {password_file}
acl_file {acl_file}
certfile {certificate_file}
keyfile {key_file}
tls_version tlsv1.2"""
"""``tls_version`` is the lowest version that is accepted."""
HASH_ITERATIONS = 10_000
SALT_BYTES = 12
"""Mosquitto 2.0 accepts no other length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """The files that a secure Mosquitto reads.

    With ``client_ca_file``, a client also needs a certificate of that authority.
    """

    password_file: Path
    acl_file: Path
    certificate_file: Path
    key_file: Path
    client_ca_file: Path | None = None


def mosquitto_configuration(
    host: str, port: int, *, folder: Path, user: str, security: BrokerSecurity | None = None
) -> str:
    """Return the configuration file of Mosquitto, which stores its messages in ``folder``."""
    access = "allow_anonymous true"
    if security is not None:
        access = SECURE_ACCESS.format(
            password_file=security.password_file,
            acl_file=security.acl_file,
            certificate_file=security.certificate_file,
            key_file=security.key_file,
        )
        if security.client_ca_file is not None:
            access += f"\ncafile {security.client_ca_file}\nrequire_certificate true"
    return CONFIGURATION.format(port=port, host=host, access=access, folder=folder, user=user)


def password_file(passwords: Mapping[str, str]) -> str:
    """Return the password file of Mosquitto: salted PBKDF2 hashes (its format ``$7$``)."""
    return "".join(f"{user}:{_hash(password)}\n" for user, password in passwords.items())


def _hash(password: str) -> str:
    salt = secrets.token_bytes(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, HASH_ITERATIONS)
    encoded = (base64.b64encode(data).decode() for data in (salt, digest))
    return f"$7${HASH_ITERATIONS}${'$'.join(encoded)}"


def access_control_list(users: Mapping[str, tuple[str, ...]]) -> str:
    """Return the ACL file: each user with the topic filters that it may read and write."""
    blocks = []
    for user, filters in users.items():
        rules = "".join(f"topic readwrite {name}\n" for name in filters)
        blocks.append(f"user {user}\n{rules}")
    return "\n".join(blocks)
