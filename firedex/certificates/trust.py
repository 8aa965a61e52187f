"""Which certificates a site trusts: authorities and revocations, read again when the files change.

The layout of a folder of certificates is described in `firedex.certificates.site_credentials`.
"""

import logging
from pathlib import Path

from cryptography import x509

from firedex.certificates.contents import (
    AUTHORITY_FILE,
    TRUSTED_FOLDER,
    CredentialsError,
    parse_fingerprint,
    read_file,
    read_trust_anchors,
)

__all__ = ["REVOKED_FILE", "RevocationList", "TrustAnchors", "parse_revoked"]

log = logging.getLogger("firedex.federation")

REVOKED_FILE = "revoked.txt"
FileVersion = tuple[int, int, int]


def _version_of(path: Path) -> FileVersion | None:
    """Return what changes with each write of a file; None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CredentialsError(path, error.strerror or "cannot be read") from error
    return status.st_mtime_ns, status.st_size, status.st_ino


class TrustAnchors:
    """The certificates of the own authority and of the trusted authorities of a folder.

    A site of another organisation can join a running federation: its authority is trusted for new
    connections as soon as its file is in the folder.
    """

    def __init__(self, folder: Path) -> None:
        """Read the certificates; raise `CredentialsError` if one of them is invalid."""
        self._folder = folder
        self._versions = self._read_versions()
        self._anchors = tuple(read_trust_anchors(folder).values())

    def current(self) -> tuple[x509.Certificate, ...]:
        """Return the trusted certificates, after reading files that have changed.

        If a changed file cannot be read or is not valid, a warning is logged and the previous
        certificates are returned; also if no certificate is found.
        """
        try:
            versions = self._read_versions()
            if versions == self._versions:
                return self._anchors
            self._versions = versions
            found = tuple(read_trust_anchors(self._folder).values())
        except (CredentialsError, OSError) as error:
            log.warning("%s; the previously trusted authorities are still used", error)
        else:
            # a folder that is empty for a moment, while it is copied, must not stop the federator
            self._anchors = found or self._anchors
        return self._anchors

    def _read_versions(self) -> dict[Path, FileVersion | None]:
        trusted = (self._folder / TRUSTED_FOLDER).glob("*.pem")
        return {path: _version_of(path) for path in (self._folder / AUTHORITY_FILE, *trusted)}


def parse_revoked(text: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the fingerprints of a revocation file, and what is wrong with its other lines."""
    found: set[str] = set()
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        try:
            found.add(parse_fingerprint(entry))
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    return frozenset(found), tuple(problems)


class RevocationList:
    """The fingerprints in ``revoked.txt``. The file is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        """Read the file, which may be missing; raise `CredentialsError` if it is invalid."""
        self._path = path
        self._revoked: frozenset[str] = frozenset()
        self._version = _version_of(path)
        if self._version is None:
            return
        self._revoked, problems = parse_revoked(read_file(path).decode(errors="replace"))
        if problems:
            raise CredentialsError(path, "; ".join(problems))

    def __contains__(self, fingerprint: str) -> bool:
        self._refresh()
        return fingerprint in self._revoked

    def _refresh(self) -> None:
        """Read the file again if it has changed.

        A running federator must not stop because of an error in the file. The error is logged, and
        the valid lines apply. As long as the file has invalid lines or cannot be read, all
        certificates that were revoked before remain revoked.
        """
        try:
            version = _version_of(self._path)
            if version == self._version:
                return
            text = "" if version is None else read_file(self._path).decode(errors="replace")
        except CredentialsError as error:
            log.warning("%s; the previous revocations stay in force", error)
            return
        revoked, problems = parse_revoked(text)
        if problems:
            revoked |= self._revoked
            log.warning("%s: %s (ignored)", self._path, "; ".join(problems))
        self._version, self._revoked = version, revoked
