"""A folder of certificates: the operations of ``firedex certificates`` on its files.

The layout of the folder is described in `firedex.certificates.site_credentials`.
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

from firedex.certificates.authority import (
    AUTHORITY_DAYS,
    SITE_DAYS,
    CertificateWithKey,
    new_authority,
    new_certificate,
)
from firedex.certificates.contents import (
    AUTHORITY_FILE,
    TRUSTED_FOLDER,
    CredentialsError,
    Holder,
    check_site_name,
    common_name,
    fingerprint_of,
    holder_of,
    is_authority,
    issued_by,
    parse_fingerprint,
    read_certificate,
    read_file,
    read_trust_anchors,
    site_of,
)
from firedex.certificates.invitations import Invitation
from firedex.certificates.trust import REVOKED_FILE, parse_revoked
from firedex.system.files import write_atomically
from firedex.wire.values import is_identifier

__all__ = ["CertificateEntry", "CertificateFolder", "CertificateKind"]

AUTHORITY_KEY_FILE = "authority.key"
KEY_MODE = 0o600
SUBFOLDERS = {
    Holder.SITE: ".",
    Holder.PART: "parts",
    Holder.SWITCH: "switches",
    Holder.CLIENT: "clients",
}


class CertificateKind(StrEnum):
    """What a certificate of a folder is for."""

    AUTHORITY = "authority"
    TRUSTED = "trusted"
    SITE = "site"
    PART = "part"
    SWITCH = "switch"
    CLIENT = "client"
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
    """The authority that issued the certificate."""


class CertificateFolder:
    """The certificates of an organisation in a folder, and the operations on them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._authority_file = path / AUTHORITY_FILE
        self._authority_key_file = path / AUTHORITY_KEY_FILE
        self._revoked_file = path / REVOKED_FILE

    @property
    def authority_file(self) -> Path:
        """The path of the certificate of the own authority."""
        return self._authority_file

    def files_of(self, name: str, holder: Holder = Holder.SITE) -> tuple[Path, Path]:
        """Return the paths of a certificate and of its private key."""
        folder = self._path / SUBFOLDERS[holder]
        return folder / f"{name}.pem", folder / f"{name}.key"

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
        names: Sequence[str],
        *,
        holder: Holder = Holder.SITE,
        now: datetime,
        hosts: Sequence[str] = (),
        days: int = SITE_DAYS,
        replace: bool = False,
    ) -> list[tuple[CertificateEntry, str | None]]:
        """Write a certificate and a key for each site, part, switch or client.

        Each entry is returned with the fingerprint of the certificate that it replaced, if any.
        Without ``replace``, nothing is written if a certificate or key exists already.
        """
        for name in names:
            try:
                check_site_name(name)
            except ValueError as error:
                raise CredentialsError(self._path, str(error)) from error
        with self._lock():
            authority = self._authority_with_key()
            files = [self.files_of(name, holder) for name in names]
            existing = [file for pair in files for file in pair if file.exists()]
            if existing and not replace:
                raise CredentialsError(
                    existing[0], "already exists; use --replace to issue a new certificate and key"
                )
            try:
                made = [
                    new_certificate(authority, name, holder=holder, hosts=hosts, now=now, days=days)
                    for name in names
                ]
            except ValueError as error:
                raise CredentialsError(self._authority_file, str(error)) from error
            replaced = [_fingerprint_of_file(file) for file, _ in files]
            for pair, each in zip(files, made, strict=True):
                pair[0].parent.mkdir(exist_ok=True)
                _write(each, *pair)
        entries = [
            CertificateEntry(
                kind=CertificateKind(holder),
                fingerprint=fingerprint_of(each.certificate),
                name=name,
                file=file,
                expires=each.certificate.not_valid_after_utc,
                authority_fingerprint=fingerprint_of(authority.certificate),
            )
            for name, (file, _), each in zip(names, files, made, strict=True)
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

    def revoke(
        self, name_or_fingerprint: str, *, holder: Holder = Holder.SITE, now: datetime
    ) -> tuple[str, bool]:
        """Revoke a certificate, given by the name of its holder or by its fingerprint.

        Returns the fingerprint, and False if it was revoked before.
        """
        with self._lock():
            fingerprint, name = self._find(name_or_fingerprint, holder)
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
        for file in self._certificate_files():
            certificate = read_certificate(file)
            fingerprint = fingerprint_of(certificate)
            issuers = [anchor for anchor in anchors.values() if issued_by(certificate, anchor)]
            entries.append(
                CertificateEntry(
                    kind=CertificateKind(_holder_of_file(certificate, file)[0]),
                    fingerprint=fingerprint,
                    name=_holder_of_file(certificate, file)[1],
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

    def _certificate_files(self) -> list[Path]:
        folders = [self._path / name for name in SUBFOLDERS.values()]
        found = [file for folder in folders for file in sorted(folder.glob("*.pem"))]
        return [file for file in found if file != self._authority_file]

    def invite(self, site: str, address: tuple[str, int]) -> Invitation:
        """Return the invitation to connect to a site of this folder."""
        file, _ = self.files_of(site)
        certificate = read_certificate(file)
        fingerprint = fingerprint_of(certificate)
        if fingerprint in self._revoked():
            raise CredentialsError(file, f"is revoked in {self._revoked_file}")
        try:
            named = site_of(certificate)
        except ValueError as error:
            raise CredentialsError(file, str(error)) from error
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

    def _find(self, name_or_fingerprint: str, holder: Holder) -> tuple[str, str | None]:
        """Return the fingerprint to revoke, and the name of its holder, if it was given."""
        if is_identifier(name_or_fingerprint):
            file, _ = self.files_of(name_or_fingerprint, holder)
            if file != self._authority_file and file.exists():
                return fingerprint_of(read_certificate(file)), name_or_fingerprint
        try:
            fingerprint = parse_fingerprint(name_or_fingerprint)
        except ValueError as error:
            raise CredentialsError(
                self._path,
                f"has no certificate of a {holder} {name_or_fingerprint!r}, and that is not a"
                " SHA-256 fingerprint (64 hex digits)",
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


def _fingerprint_of_file(file: Path) -> str | None:
    return fingerprint_of(read_certificate(file)) if file.exists() else None


def _holder_of_file(certificate: x509.Certificate, file: Path) -> tuple[Holder, str]:
    try:
        return holder_of(certificate)
    except ValueError as error:
        raise CredentialsError(file, str(error)) from error


def _write(made: CertificateWithKey, file: Path, key_file: Path) -> None:
    key = made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_atomically(key_file, key, mode=KEY_MODE)
    write_atomically(file, made.certificate.public_bytes(Encoding.PEM))
