"""A folder of certificates: the operations of ``firedex certificates`` on its files.

The layout of the folder is described in `firedex.federation.certificates`.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from firedex.federation.certificate_authority import (
    AUTHORITY_DAYS,
    SITE_DAYS,
    CertificateWithKey,
    new_authority,
    new_site_certificate,
)
from firedex.federation.certificate_contents import (
    AUTHORITY_FILE,
    TRUSTED_FOLDER,
    CredentialsError,
    check_site_name,
    common_name,
    fingerprint_of,
    is_authority,
    issued_by,
    parse_fingerprint,
    read_certificate,
    read_file,
    read_trust_anchors,
    site_of,
)
from firedex.federation.certificate_trust import REVOKED_FILE, parse_revoked
from firedex.federation.invitations import Invitation
from firedex.system.files import write_atomically
from firedex.wire.values import is_identifier

__all__ = ["CertificateEntry", "CertificateFolder", "CertificateKind"]

AUTHORITY_KEY_FILE = "authority.key"
KEY_MODE = 0o600


class CertificateKind(StrEnum):
    """What a certificate of a folder is for."""

    AUTHORITY = "authority"
    TRUSTED = "trusted"
    SITE = "site"
    UNKNOWN = "unknown"
    """Only the fingerprint is known, because it is revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateEntry:
    """A certificate of a folder, or the fingerprint of a revoked one that is not in the folder."""

    kind: CertificateKind
    fingerprint: str
    name: str | None = None
    file: Path | None = None
    expires: datetime | None = None
    revoked: bool = False
    authority_fingerprint: str | None = None
    """The authority that issued the certificate of a site."""


class CertificateFolder:
    """The certificates of an organisation in a folder, and the operations on them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._authority_file = path / AUTHORITY_FILE
        self._authority_key_file = path / AUTHORITY_KEY_FILE
        self._revoked_file = path / REVOKED_FILE

    def site_file(self, site: str) -> Path:
        """Return the path of the certificate of a site."""
        return self._path / f"{site}.pem"

    def create_authority(
        self, name: str, *, now: datetime, days: int = AUTHORITY_DAYS
    ) -> CertificateEntry:
        """Create the folder and an authority in it; never replaces an existing authority."""
        self._path.mkdir(parents=True, exist_ok=True)
        with self._lock():
            for file in (self._authority_file, self._authority_key_file):
                if file.exists():
                    raise CredentialsError(file, "already exists and is not replaced")
            made = new_authority(name, now=now, days=days)
            _write(made, self._authority_file, self._authority_key_file)
        return CertificateEntry(
            kind=CertificateKind.AUTHORITY,
            fingerprint=fingerprint_of(made.certificate),
            name=name,
            file=self._authority_file,
            expires=made.certificate.not_valid_after_utc,
        )

    def authority(self) -> x509.Certificate:
        """Return the certificate of the own authority."""
        return read_certificate(self._authority_file)

    def issue(
        self,
        sites: Sequence[str],
        *,
        now: datetime,
        hosts: Sequence[str] = (),
        days: int = SITE_DAYS,
        replace: bool = False,
    ) -> list[tuple[CertificateEntry, str | None]]:
        """Write a certificate and a key for each site.

        Each entry is returned with the fingerprint of the certificate that it replaced, if any.
        Without ``replace``, nothing is written if a site already has a certificate or key.
        """
        for site in sites:
            try:
                check_site_name(site)
            except ValueError as error:
                raise CredentialsError(self._path, str(error)) from error
        with self._lock():
            authority = self._authority_with_key()
            existing = [file for site in sites for file in self._site_files(site) if file.exists()]
            if existing and not replace:
                raise CredentialsError(
                    existing[0], "already exists; use --replace to issue a new certificate and key"
                )
            try:
                made = [
                    new_site_certificate(authority, site, hosts=hosts, now=now, days=days)
                    for site in sites
                ]
            except ValueError as error:
                raise CredentialsError(self._authority_file, str(error)) from error
            replaced = [self._fingerprint_of_site(site) for site in sites]
            for site, each in zip(sites, made, strict=True):
                _write(each, *self._site_files(site))
        entries = [
            CertificateEntry(
                kind=CertificateKind.SITE,
                fingerprint=fingerprint_of(each.certificate),
                name=site,
                file=self.site_file(site),
                expires=each.certificate.not_valid_after_utc,
                authority_fingerprint=fingerprint_of(authority.certificate),
            )
            for site, each in zip(sites, made, strict=True)
        ]
        return list(zip(entries, replaced, strict=True))

    def trust(
        self, certificate: x509.Certificate, *, where: object, now: datetime
    ) -> CertificateEntry:
        """Add the authority of another organisation to the trust anchors.

        ``where`` names the source of the certificate in errors. An authority that is trusted
        already is not added again.
        """
        if not is_authority(certificate):
            raise CredentialsError(where, "is not the certificate of an authority")
        if now > certificate.not_valid_after_utc:
            raise CredentialsError(where, f"expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
        fingerprint, name = fingerprint_of(certificate), common_name(certificate)
        with self._lock():
            anchors = read_trust_anchors(self._path)
            present = [file for file in anchors if fingerprint_of(anchors[file]) == fingerprint]
            if present:
                file = present[0]
            else:
                slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-") or "authority"
                file = self._path / TRUSTED_FOLDER / f"{slug}-{fingerprint[:8]}.pem"
                file.parent.mkdir(exist_ok=True)
                write_atomically(file, certificate.public_bytes(Encoding.PEM))
        return CertificateEntry(
            kind=self._kind_of(file),
            fingerprint=fingerprint,
            name=name,
            file=file,
            expires=certificate.not_valid_after_utc,
        )

    def revoke(self, name_or_fingerprint: str, *, now: datetime) -> tuple[str, bool]:
        """Revoke the certificate of a site, given by its name or by its fingerprint.

        Returns the fingerprint, and False if it was revoked before.
        """
        with self._lock():
            fingerprint, name = self._find(name_or_fingerprint)
            revoked = self._revoked()
            if fingerprint in revoked:
                return fingerprint, False
            comment = f"  # {name}, {now:%Y-%m-%d}" if name else f"  # {now:%Y-%m-%d}"
            content = read_file(self._revoked_file) if self._revoked_file.exists() else b""
            if content and not content.endswith(b"\n"):
                content += b"\n"
            write_atomically(self._revoked_file, content + f"{fingerprint}{comment}\n".encode())
            return fingerprint, True

    def entries(self) -> list[CertificateEntry]:
        """Return all certificates of the folder, and revoked ones that are not in it."""
        if not self._path.is_dir():
            raise CredentialsError(self._path, "is not a folder")
        revoked = self._revoked()
        anchors = read_trust_anchors(self._path)
        entries = []
        for file, anchor in anchors.items():
            entries.append(
                CertificateEntry(
                    kind=self._kind_of(file),
                    fingerprint=fingerprint_of(anchor),
                    name=common_name(anchor),
                    file=file,
                    expires=anchor.not_valid_after_utc,
                )
            )
        for file in sorted(set(self._path.glob("*.pem")) - {self._authority_file}):
            certificate = read_certificate(file)
            fingerprint = fingerprint_of(certificate)
            issuers = [anchor for anchor in anchors.values() if issued_by(certificate, anchor)]
            entries.append(
                CertificateEntry(
                    kind=CertificateKind.SITE,
                    fingerprint=fingerprint,
                    name=_site_of_file(certificate, file),
                    file=file,
                    expires=certificate.not_valid_after_utc,
                    revoked=fingerprint in revoked,
                    authority_fingerprint=fingerprint_of(issuers[0]) if issuers else None,
                )
            )
        present = {entry.fingerprint for entry in entries}
        entries += [
            CertificateEntry(kind=CertificateKind.UNKNOWN, fingerprint=fingerprint, revoked=True)
            for fingerprint in sorted(revoked - present)
        ]
        return entries

    def invite(self, site: str, address: tuple[str, int]) -> Invitation:
        """Return the invitation to connect to a site of this folder."""
        file = self.site_file(site)
        certificate = read_certificate(file)
        fingerprint = fingerprint_of(certificate)
        if fingerprint in self._revoked():
            raise CredentialsError(file, f"is revoked in {self._revoked_file}")
        named = _site_of_file(certificate, file)
        return Invitation(address=address, site=named, fingerprint=fingerprint)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let two commands that change the folder run one after the other."""
        try:
            folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise CredentialsError(self._path, error.strerror or "is not a folder") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _kind_of(self, anchor_file: Path) -> CertificateKind:
        own = anchor_file == self._authority_file
        return CertificateKind.AUTHORITY if own else CertificateKind.TRUSTED

    def _site_files(self, site: str) -> tuple[Path, Path]:
        return self.site_file(site), self._path / f"{site}.key"

    def _authority_with_key(self) -> CertificateWithKey:
        certificate = self.authority()
        try:
            key = load_pem_private_key(read_file(self._authority_key_file), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise CredentialsError(
                self._authority_key_file, "is not a private key in PEM format"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise CredentialsError(self._authority_key_file, "is neither an EC nor an RSA key")
        if key.public_key() != certificate.public_key():
            raise CredentialsError(self._authority_key_file, f"does not belong to {AUTHORITY_FILE}")
        return CertificateWithKey(certificate=certificate, key=key)

    def _fingerprint_of_site(self, site: str) -> str | None:
        file = self.site_file(site)
        return fingerprint_of(read_certificate(file)) if file.exists() else None

    def _find(self, name_or_fingerprint: str) -> tuple[str, str | None]:
        """Return the fingerprint to revoke, and the site that it belongs to, if it was named."""
        if is_identifier(name_or_fingerprint):
            file = self.site_file(name_or_fingerprint)
            if file != self._authority_file and file.exists():
                return fingerprint_of(read_certificate(file)), name_or_fingerprint
        try:
            fingerprint = parse_fingerprint(name_or_fingerprint)
        except ValueError as error:
            raise CredentialsError(
                self._path,
                f"has no certificate of a site {name_or_fingerprint!r}, and that is not a SHA-256"
                " fingerprint (64 hex digits)",
            ) from error
        for file, anchor in read_trust_anchors(self._path).items():
            if fingerprint_of(anchor) == fingerprint:
                raise CredentialsError(
                    file, "is the certificate of an authority; delete the file to stop trusting it"
                )
        return fingerprint, None

    def _revoked(self) -> frozenset[str]:
        if not self._revoked_file.exists():
            return frozenset()
        revoked, problems = parse_revoked(read_file(self._revoked_file).decode(errors="replace"))
        if problems:
            raise CredentialsError(self._revoked_file, "; ".join(problems))
        return revoked


def _site_of_file(certificate: x509.Certificate, file: Path) -> str:
    try:
        return site_of(certificate)
    except ValueError as error:
        raise CredentialsError(file, str(error)) from error


def _write(made: CertificateWithKey, file: Path, key_file: Path) -> None:
    key = made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_atomically(key_file, key, mode=KEY_MODE)
    write_atomically(file, made.certificate.public_bytes(Encoding.PEM))
