"""The contents of certificates: names, fingerprints, and which authority issued a certificate.

The layout of a folder of certificates is described in `firedex.certificates.site_credentials`.
"""

import re
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from firedex.wire.values import IDENTIFIER_RULE, is_identifier

__all__ = [
    "AUTHORITY_FILE",
    "SITE_URI_PREFIX",
    "TRUSTED_FOLDER",
    "CredentialsError",
    "Holder",
    "check_site_name",
    "common_name",
    "fingerprint_of",
    "holder_of",
    "is_authority",
    "issued_by",
    "parse_certificate",
    "parse_fingerprint",
    "read_certificate",
    "read_file",
    "read_trust_anchors",
    "site_of",
]

AUTHORITY_FILE = "authority.pem"
TRUSTED_FOLDER = "trusted"
URI_PREFIX = "urn:firedex:"
SITE_URI_PREFIX = f"{URI_PREFIX}site:"
SITE_NAME_MAX_LENGTH = 64
"""X.509 allows no longer common name."""


class Holder(StrEnum):
    """The kind of thing that a certificate names, as ``urn:firedex:KIND:NAME``."""

    SITE = "site"
    """A federator, towards other sites."""
    PART = "part"
    """A part of a site, such as the gateway; it is both a server and a client."""
    SWITCH = "switch"
    """A switch, which connects to the controller."""
    CLIENT = "client"
    """A publisher or subscriber."""

    @property
    def uri_prefix(self) -> str:
        """The text before the name in the certificate."""
        return f"{URI_PREFIX}{self}:"


class CredentialsError(Exception):
    """Credentials are missing or invalid; ``where`` is the file, or the peer that sent them."""

    def __init__(self, where: object, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = str(where)
        self.problem = problem


def check_site_name(name: str) -> str:
    """Return ``name``, or raise ValueError if no certificate can be issued for it."""
    if not is_identifier(name) or len(name) > SITE_NAME_MAX_LENGTH:
        rule = IDENTIFIER_RULE.replace("128", str(SITE_NAME_MAX_LENGTH))
        raise ValueError(f"{name!r} is not a valid site name; use {rule}")
    if f"{name}.pem" == AUTHORITY_FILE:
        raise ValueError(
            f"{name!r} is not a valid site name; its file would be that of the authority"
        )
    return name


def parse_fingerprint(text: str) -> str:
    """Return a SHA-256 fingerprint as 64 lower-case hex digits; raise ValueError if it is invalid.

    Colons between the bytes, as OpenSSL prints them, and capital letters are accepted.
    """
    digits = text.strip().lower()
    if re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){31}", digits):
        digits = digits.replace(":", "")
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ValueError(f"{text!r} is not a SHA-256 fingerprint (64 hex digits)")
    return digits


def fingerprint_of(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint of a certificate."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def common_name(certificate: x509.Certificate) -> str:
    """Return the common name of the subject, without control characters.

    Certificates come from other organisations, and their names are printed on terminals.
    """
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    text = str(found[0].value) if found else certificate.subject.rfc4514_string()
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def holder_of(certificate: x509.Certificate) -> tuple[Holder, str]:
    """Return the kind and the name of the holder; raise ValueError if it is not one of FireDeX."""
    found = [
        (kind, uri.removeprefix(kind.uri_prefix))
        for uri in _uris(certificate)
        for kind in Holder
        if uri.startswith(kind.uri_prefix)
    ]
    if len(found) != 1:
        raise ValueError(
            f"the certificate must have one subject alternative name {URI_PREFIX}KIND:NAME,"
            f" not {len(found)}"
        )
    kind, name = found[0]
    if common_name(certificate) != name:
        raise ValueError(
            f"the certificate names the {kind} {name!r}, but its subject"
            f" {common_name(certificate)!r}"
        )
    return kind, check_site_name(name)


def site_of(certificate: x509.Certificate) -> str:
    """Return the site that a certificate names; raise ValueError unless it names exactly one."""
    sites = [
        uri.removeprefix(SITE_URI_PREFIX)
        for uri in _uris(certificate)
        if uri.startswith(SITE_URI_PREFIX)
    ]
    if len(sites) != 1:
        raise ValueError(
            f"the certificate must have one subject alternative name {SITE_URI_PREFIX}NAME,"
            f" not {len(sites)}"
        )
    subject = common_name(certificate)
    if subject != sites[0]:
        raise ValueError(
            f"the certificate names the site {sites[0]!r}, but its subject {subject!r}"
        )
    return check_site_name(sites[0])


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether a certificate may issue other certificates."""
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    try:
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return basic.ca
    return basic.ca and usage.key_cert_sign


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether ``authority`` signed ``certificate`` itself, without intermediates."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def parse_certificate(data: bytes, where: object) -> x509.Certificate:
    """Return the only certificate of a PEM file; raise `CredentialsError` if there is not one."""
    if b"PRIVATE KEY-----" in data:
        raise CredentialsError(where, "contains a private key; a certificate file must not")
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise CredentialsError(where, "is not a certificate in PEM format") from error
    if len(found) != 1:
        raise CredentialsError(where, f"contains {len(found)} certificates instead of one")
    return found[0]


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate of a file; raise `CredentialsError` if there is none."""
    return parse_certificate(read_file(path), path)


def read_trust_anchors(folder: Path) -> dict[Path, x509.Certificate]:
    """Return the own authority, if any, and the trusted authorities, by file."""
    own = folder / AUTHORITY_FILE
    files = [own] if own.exists() else []
    files += sorted((folder / TRUSTED_FOLDER).glob("*.pem"))
    anchors = {}
    for path in files:
        anchors[path] = read_certificate(path)
        if not is_authority(anchors[path]):
            raise CredentialsError(path, "is not the certificate of an authority")
    return anchors


def read_file(path: Path) -> bytes:
    """Return the content of a file; raise `CredentialsError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialsError(path, error.strerror or "cannot be read") from error
