"""Certificates of a test site, and a Mosquitto that requires TLS and passwords."""

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from firedex.certificates.contents import Holder
from firedex.certificates.folder import CertificateFolder
from firedex.site.mosquitto import (
    BrokerSecurity,
    access_control_list,
    mosquitto_configuration,
    password_file,
)
from tests.support.free_ports import free_port
from tests.support.loopback_parts import running_mosquitto

__all__ = ["SiteCertificates", "make_certificates", "secure_mosquitto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCertificates:
    path: Path

    @property
    def folder(self) -> CertificateFolder:
        return CertificateFolder(self.path)

    @property
    def ca(self) -> Path:
        return self.folder.authority_file

    def part(self, name: str) -> tuple[Path, Path]:
        return self.folder.files_of(name, Holder.PART)

    def client(self, name: str) -> tuple[Path, Path]:
        return self.folder.files_of(name, Holder.CLIENT)


def make_certificates(
    path: Path,
    *,
    parts: tuple[str, ...] = ("broker", "gateway", "service"),
    clients: tuple[str, ...] = (),
) -> SiteCertificates:
    folder, now = CertificateFolder(path), datetime.now(UTC)
    folder.create_authority("test site", now=now)
    folder.issue(parts, holder=Holder.PART, hosts=("127.0.0.1",), now=now)
    if clients:
        folder.issue(clients, holder=Holder.CLIENT, now=now)
    return SiteCertificates(path=path)


@contextmanager
def secure_mosquitto(
    folder: Path,
    certificates: SiteCertificates,
    passwords: Mapping[str, str],
    *,
    client_certificates: bool = False,
) -> Iterator[int]:
    """Run a Mosquitto with TLS in which each user may do everything; yield its port."""
    port = free_port()
    certificate, key = certificates.part("broker")
    security = BrokerSecurity(
        password_file=folder / "passwords",
        acl_file=folder / "acl",
        certificate_file=certificate,
        key_file=key,
        client_ca_file=certificates.ca if client_certificates else None,
    )
    for path, text in (
        (security.password_file, password_file(passwords)),
        (security.acl_file, access_control_list(dict.fromkeys(passwords, ("#",)))),
    ):
        path.write_text(text)
        path.chmod(0o600)
    user = pwd.getpwuid(os.geteuid()).pw_name
    file = folder / "mosquitto.conf"
    file.write_text(
        mosquitto_configuration("127.0.0.1", port, folder=folder, user=user, security=security)
    )
    with running_mosquitto(file, port):
        yield port
