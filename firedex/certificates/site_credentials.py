"""Certificates of sites: who a peer is, whether it is trusted, and TLS contexts for links.

A folder contains the certificates of one organisation or of one site::

    authority.pem     certificate of the own authority
    authority.key     its private key; not needed by a federator
    trusted/*.pem     certificates of the authorities of other organisations
    SITE.pem          certificate of a site
    SITE.key          its private key
    parts/            certificates and keys of the parts of a site, such as parts/gateway.pem
    switches/         certificates and keys of switches
    clients/          certificates and keys of publishers and subscribers
    revoked.txt       SHA-256 fingerprints of revoked certificates, one per line; # starts a comment

A certificate names its site twice: in the common name of its subject and as the URI
``urn:firedex:site:NAME``. Host names are not checked: a link is made to a site, not to a host. A
fingerprint is the SHA-256 digest of the DER form of a certificate, as 64 lower-case hex digits.
"""

import logging
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from firedex.certificates.contents import (
    AUTHORITY_FILE,
    TRUSTED_FOLDER,
    CredentialsError,
    check_site_name,
    fingerprint_of,
    issued_by,
    parse_fingerprint,
    read_certificate,
    read_file,
    site_of,
)
from firedex.certificates.trust import REVOKED_FILE, RevocationList, TrustAnchors

__all__ = [
    "CredentialsError",
    "PeerIdentity",
    "SiteCredentials",
    "explain_tls_error",
    "read_credentials",
]

log = logging.getLogger("firedex.federation")

OTHERS_MASK = stat.S_IRWXG | stat.S_IRWXO
UNKNOWN_AUTHORITY_CODES = (18, 19, 20, 21)
NOT_YET_VALID_CODE = 9
EXPIRED_CODE = 10
"""Results of the verification of a certificate, from ``x509_vfy.h`` of OpenSSL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """Who the other end of a TLS connection is, according to its certificate."""

    site: str
    fingerprint: str
    authority_fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SiteCredentials:
    """The certificate and key of one site, and the authorities that it trusts."""

    site: str
    certificate_file: Path
    key_file: Path
    certificate: x509.Certificate
    anchors: TrustAnchors
    revoked: RevocationList
    authority_of_site: Mapping[str, str] | None = None
    """The fingerprint of the authority that each site's certificate must have; None: any."""
    accepts_other_sites: bool = False
    """Whether a site that is not in ``authority_of_site`` may use any trusted authority."""
    fingerprint_of_site: Mapping[str, str] = field(default_factory=dict)
    """The fingerprint that the certificate of a site must have, from an invitation."""

    @property
    def trust_anchors(self) -> tuple[x509.Certificate, ...]:
        """The authorities that are trusted now; files that have changed are read again."""
        return self.anchors.current()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the own certificate."""
        return fingerprint_of(self.certificate)

    @property
    def expires(self) -> datetime:
        """The time at which the own certificate expires."""
        return self.certificate.not_valid_after_utc

    def server_context(self) -> ssl.SSLContext:
        """Return a context that accepts connections of clients with a trusted certificate.

        A server of `asyncio.start_server` does not report why it refused a client. To learn the
        reason, accept with `loop.sock_accept` and await `loop.connect_accepted_socket` with this
        context: it raises the error of the handshake.
        """
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would skip the check of the client's certificate.
        context.num_tickets = 0
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return a context that connects to servers with a trusted certificate.

        The caller compares the site name with `peer_identity`; host names are not checked. In TLS
        1.3 the client's handshake ends before the server has checked the client's certificate: a
        client that is refused sees the end of the stream, or an `OSError`, at its first read.
        """
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # An authority that another organisation gave us counts, also if it is an intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        anchors = b"".join(anchor.public_bytes(Encoding.DER) for anchor in self.trust_anchors)
        context.load_verify_locations(cadata=anchors)
        try:
            context.load_cert_chain(self.certificate_file, self.key_file)
        except OSError as error:  # ssl.SSLError is one
            raise CredentialsError(
                self.certificate_file, f"cannot be used with {self.key_file}: {error.strerror}"
            ) from error
        return context

    def peer_identity(
        self, ssl_object: ssl.SSLObject | ssl.SSLSocket, *, site: str | None = None
    ) -> PeerIdentity:
        """Return who the peer of an established connection is.

        Raises `CredentialsError` if its certificate does not name a site, names another site than
        ``site`` (if given), is not the one of an invitation, or was issued by an authority that may
        not issue it. Revocation is checked by `is_revoked`, because it can change while the
        connection is open.
        """
        data = ssl_object.getpeercert(binary_form=True)
        if data is None:
            raise CredentialsError("peer", "sent no certificate")
        certificate = x509.load_der_x509_certificate(data)
        fingerprint = fingerprint_of(certificate)
        where = f"peer with certificate {fingerprint}"
        try:
            found = site_of(certificate)
        except ValueError as error:
            raise CredentialsError(where, str(error)) from error
        where = f"site {found!r} with certificate {fingerprint}"
        if site is not None and found != site:
            raise CredentialsError(where, f"is not the expected site {site!r}")
        invited = self.fingerprint_of_site.get(found, fingerprint)
        if invited != fingerprint:
            raise CredentialsError(
                where,
                f"the invitation names another certificate, with the fingerprint {invited};"
                " check the address, or ask for a new invitation",
            )
        authority = self._authority_of(certificate, found, where)
        return PeerIdentity(site=found, fingerprint=fingerprint, authority_fingerprint=authority)

    def _authority_of(self, certificate: x509.Certificate, site: str, where: str) -> str:
        issuers = [
            fingerprint_of(anchor)
            for anchor in self.trust_anchors
            if issued_by(certificate, anchor)
        ]
        if not issuers:
            raise CredentialsError(where, "was not issued by a trusted authority itself")
        if self.authority_of_site is None:
            return issuers[0]
        expected = self.authority_of_site.get(site)
        if expected is None and self.accepts_other_sites:
            return issuers[0]
        if expected is None:
            raise CredentialsError(where, "no authority is configured for this site")
        if expected not in issuers:
            raise CredentialsError(
                where, f"was issued by the authority {issuers[0]}, not by the expected {expected}"
            )
        return expected

    def is_revoked(self, fingerprint: str) -> bool:
        """Return whether a certificate is revoked now; reads ``revoked.txt`` if it has changed."""
        return fingerprint in self.revoked


def explain_tls_error(error: OSError) -> str:
    """Return why a TLS handshake failed, in the words of this package where OpenSSL is unclear."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in UNKNOWN_AUTHORITY_CODES:
            return "the certificate of the peer was issued by an authority that is not trusted"
        if error.verify_code == EXPIRED_CODE:
            return "the certificate of the peer, or of its authority, has expired"
        if error.verify_code == NOT_YET_VALID_CODE:
            return "the certificate of the peer is not yet valid; check the clocks of both sites"
        return f"the certificate of the peer is invalid: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the peer sent no certificate"
    return str(error) or type(error).__name__


def read_credentials(
    folder: Path,
    site: str,
    *,
    authorities: Mapping[str, str] | None = None,
    accepts_other_sites: bool = False,
    fingerprints: Mapping[str, str] | None = None,
    now: datetime | None = None,
) -> SiteCredentials:
    """Read and check the credentials of a site; raise `CredentialsError` if they cannot be used.

    ``authorities`` maps every site of the federation to the fingerprint of the authority that
    issues its certificate. Without it, every trusted organisation can issue a certificate for
    every site name. Sites that are not in ``authorities`` are refused or, with
    ``accepts_other_sites``, may use a certificate of any trusted authority. ``fingerprints`` maps a
    site named in an invitation to the fingerprint that its certificate must have.
    ``now`` is the time at which the certificate must be valid.
    """
    try:
        check_site_name(site)
    except ValueError as error:
        raise CredentialsError(folder, str(error)) from error
    certificate_file, key_file = folder / f"{site}.pem", folder / f"{site}.key"
    certificate = read_certificate(certificate_file)
    _check_own_certificate(certificate, certificate_file, site, now or datetime.now(UTC))
    _check_key(certificate, key_file)
    anchors = TrustAnchors(folder)
    if not any(issued_by(certificate, anchor) for anchor in anchors.current()):
        raise CredentialsError(
            certificate_file,
            f"was not issued by {folder / AUTHORITY_FILE} or an authority in"
            f" {folder / TRUSTED_FOLDER}",
        )
    revoked = RevocationList(folder / REVOKED_FILE)
    if fingerprint_of(certificate) in revoked:
        raise CredentialsError(certificate_file, f"is revoked in {folder / REVOKED_FILE}")
    expected = None
    if authorities is not None:
        expected = MappingProxyType(_parsed_authorities(authorities))
    return SiteCredentials(
        site=site,
        certificate_file=certificate_file,
        key_file=key_file,
        certificate=certificate,
        anchors=anchors,
        revoked=revoked,
        authority_of_site=expected,
        accepts_other_sites=accepts_other_sites,
        fingerprint_of_site=MappingProxyType(dict(fingerprints or {})),
    )


def _check_own_certificate(
    certificate: x509.Certificate, path: Path, site: str, now: datetime
) -> None:
    try:
        named = site_of(certificate)
    except ValueError as error:
        raise CredentialsError(path, str(error)) from error
    if named != site:
        raise CredentialsError(path, f"is the certificate of the site {named!r}, not of {site!r}")
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise CredentialsError(
            path,
            f"expired on {end:%Y-%m-%d}; issue a new one with `firedex certificates issue"
            f" {path.parent} {site} --replace`",
        )
    if now < begin:
        raise CredentialsError(path, f"is not valid before {begin:%Y-%m-%d %H:%M} UTC")


def _check_key(certificate: x509.Certificate, path: Path) -> None:
    try:
        key = load_pem_private_key(read_file(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CredentialsError(path, "is not a private key in PEM format") from error
    if key.public_key() != certificate.public_key():
        raise CredentialsError(path, f"does not belong to {path.with_suffix('.pem').name}")
    if path.stat().st_mode & OTHERS_MASK:
        log.warning("%s: other users may read this private key; run: chmod 600 %s", path, path)


def _parsed_authorities(authorities: Mapping[str, str]) -> dict[str, str]:
    parsed = {}
    for site, fingerprint in authorities.items():
        try:
            parsed[site] = parse_fingerprint(fingerprint)
        except ValueError as error:
            raise CredentialsError(f"authority of site {site!r}", str(error)) from error
    return parsed
