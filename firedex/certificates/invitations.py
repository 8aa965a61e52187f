"""Invitations: what a new site must know about one neighbour to join a running federation."""

from dataclasses import dataclass
from urllib.parse import quote, unquote

from firedex.certificates.contents import check_site_name, parse_fingerprint
from firedex.wire.addresses import is_loopback, parse_host_port

__all__ = ["Invitation", "invitation_problem", "parse_invitation"]

INVITATION_SCHEME = "firedex://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """The address, the name and the certificate fingerprint of a site that is already a member.

    ``fingerprint`` is None in a federation without certificates, which is allowed on loopback.
    """

    address: tuple[str, int]
    site: str
    fingerprint: str | None = None

    def __str__(self) -> str:
        host, port = self.address
        words = [f"{host}:{port}", quote(self.site, safe="")]
        if self.fingerprint is not None:
            words.append(self.fingerprint)
        return INVITATION_SCHEME + "/".join(words)


def parse_invitation(text: str) -> Invitation:
    """Return the invitation that `Invitation.__str__` wrote; raise ValueError if it is invalid."""
    words = text.strip()
    parts = words.removeprefix(INVITATION_SCHEME).split("/")
    if not words.startswith(INVITATION_SCHEME) or len(parts) not in (2, 3):
        raise ValueError(
            f"{text!r} is not an invitation of the form {INVITATION_SCHEME}HOST:PORT/SITE/SHA256"
        )
    address, site, *fingerprint = parts
    return Invitation(
        address=parse_host_port(address),
        site=check_site_name(unquote(site)),
        fingerprint=parse_fingerprint(fingerprint[0]) if fingerprint else None,
    )


def invitation_problem(invitation: Invitation, *, has_certificates: bool) -> str | None:
    """Return why a site cannot use an invitation, or None if it can."""
    if has_certificates and invitation.fingerprint is None:
        return (
            "the invitation must end with a SHA-256 fingerprint, because this site uses"
            " certificates; print a complete one with: firedex certificates invite"
        )
    if not has_certificates and invitation.fingerprint is not None:
        return (
            "the invitation has a fingerprint, but this site has no certificates;"
            " set 'security: {certificates: FOLDER}' in the federation file"
        )
    if not has_certificates and not is_loopback(invitation.address[0]):
        return (
            f"without certificates, the address must be on loopback, not {invitation.address[0]};"
            " set 'security: {certificates: FOLDER}' in the federation file"
        )
    return None
