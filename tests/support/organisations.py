"""Organisations with an authority and certificates of sites, in folders of a test."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from firedex.certificates.authority import (
    SITE_DAYS,
    CertificateWithKey,
)
from firedex.certificates.contents import fingerprint_of
from firedex.certificates.folder import CertificateFolder
from firedex.certificates.site_credentials import SiteCredentials, read_credentials

__all__ = [
    "ROOT_KEY",
    "Organisation",
    "organisation",
    "self_made_authority",
    "subject",
    "trust_each_other",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Organisation:
    path: Path

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    @property
    def folder(self) -> CertificateFolder:
        return CertificateFolder(self.path)

    @property
    def authority_fingerprint(self) -> str:
        return fingerprint_of(self.folder.authority())

    def credentials(self, site: str, authorities: dict[str, str] | None = None) -> SiteCredentials:
        return read_credentials(self.path, site, authorities=authorities)


def organisation(
    path: Path, *sites: str, now: datetime | None = None, days: int = SITE_DAYS
) -> Organisation:
    """Create an organisation with certificates for ``sites``, as of ``now``."""
    made = Organisation(path=path)
    moment = now or datetime.now(UTC)
    made.folder.create_authority(path.name, now=moment)
    made.folder.issue(sites, now=moment, days=days)
    return made


def trust_each_other(one: Organisation, other: Organisation) -> None:
    now = datetime.now(UTC)
    one.folder.trust(other.folder.authority(), where=other.path, now=now)
    other.folder.trust(one.folder.authority(), where=one.path, now=now)


ROOT_KEY = ec.generate_private_key(ec.SECP256R1())


def self_made_authority(name: str, issuer: str | None = None) -> CertificateWithKey:
    """Make an authority without a limit of its path length, signed by ROOT_KEY."""
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1()) if issuer else ROOT_KEY
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject(name))
        .issuer_name(subject(issuer or name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ROOT_KEY, hashes.SHA256())
    )
    return CertificateWithKey(certificate=signed, key=key)


def subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
