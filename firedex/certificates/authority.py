"""Making certificates: a private authority, and certificates for sites, parts and clients.

Nothing here reads a file or the clock; keys are random.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from firedex.certificates.contents import Holder

__all__ = [
    "AUTHORITY_DAYS",
    "SITE_DAYS",
    "CertificateWithKey",
    "check_authority_name",
    "check_host",
    "new_authority",
    "new_certificate",
]

AUTHORITY_DAYS = 3650
SITE_DAYS = 825
CLOCK_TOLERANCE = timedelta(hours=1)
"""A new certificate is valid from this long ago, because the clocks of sites differ."""
NAME_MAX_LENGTH = 64
HOST_PATTERN = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*"
HOST_MAX_LENGTH = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateWithKey:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def check_authority_name(name: str) -> str:
    """Return ``name``, or raise ValueError if an authority cannot have it."""
    if not 0 < len(name) <= NAME_MAX_LENGTH or not name.isprintable() or name != name.strip():
        raise ValueError(
            f"{name!r} is not a valid name; use 1 to {NAME_MAX_LENGTH} printable characters"
        )
    return name


def check_host(host: str) -> str:
    """Return ``host``, or raise ValueError if it is neither a DNS name nor an IP address."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    # An address with a mistake in it, such as 10.0.0.256, is not a DNS name.
    looks_like_address = re.fullmatch(r"[0-9.]+", host) is not None
    valid = len(host) <= HOST_MAX_LENGTH and re.fullmatch(HOST_PATTERN, host) is not None
    if looks_like_address or not valid:
        raise ValueError(f"{host!r} is neither a DNS name nor an IP address")
    return host


def new_authority(name: str, *, now: datetime, days: int = AUTHORITY_DAYS) -> CertificateWithKey:
    """Make an authority, which may issue certificates but create no other authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, check_authority_name(name))])
    builder = _builder(subject, subject, key, now=now, end=now + timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(authority=True), critical=True)
    return CertificateWithKey(certificate=builder.sign(key, hashes.SHA256()), key=key)


def new_certificate(
    authority: CertificateWithKey,
    name: str,
    *,
    holder: Holder = Holder.SITE,
    hosts: Sequence[str] = (),
    now: datetime,
    days: int = SITE_DAYS,
) -> CertificateWithKey:
    """Make a certificate; sites and parts use it both as server and as client.

    Raises ValueError if it would be valid for longer than its authority.
    """
    end = (now + timedelta(days=days)).replace(microsecond=0)  # certificates have whole seconds
    limit = authority.certificate.not_valid_after_utc
    if end > limit:
        raise ValueError(
            f"the authority expires on {limit:%Y-%m-%d}, before the {days} days of a new"
            " certificate end; use fewer days, or create a new authority"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, authority.certificate.subject, key, now=now, end=end)
    names = [x509.UniformResourceIdentifier(holder.uri_prefix + name), *map(_general_name, hosts)]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if holder in (Holder.SITE, Holder.PART):
        usages.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_key_usage(authority=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(issuer_key, critical=False)
    return CertificateWithKey(certificate=builder.sign(authority.key, hashes.SHA256()), key=key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
