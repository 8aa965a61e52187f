"""The command ``firedex certificates``: a private authority, its certificates, and trust."""

import json as json_text
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from cryptography.hazmat.primitives.serialization import Encoding

from firedex.certificates.authority import (
    AUTHORITY_DAYS,
    SITE_DAYS,
    check_authority_name,
    check_host,
)
from firedex.certificates.contents import (
    CredentialsError,
    Holder,
    check_site_name,
    common_name,
    fingerprint_of,
    parse_certificate,
    parse_fingerprint,
)
from firedex.certificates.folder import (
    CertificateEntry,
    CertificateFolder,
    CertificateKind,
)
from firedex.system.options import HOST_PORT

__all__ = ["certificates"]

MAX_DAYS = 36_500


class CertificatesFailed(click.ClickException):
    """An error that the user can fix."""

    exit_code = 2


class _Checked(click.ParamType):  # type: ignore[type-arg]
    """A text that a function checks, which raises ValueError."""

    def __init__(self, name: str, check: Callable[[str], str]) -> None:
        self.name = name
        self._check = check

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self._check(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SITE_NAME = _Checked("NAME", check_site_name)
FINGERPRINT = _Checked("SHA256", parse_fingerprint)
DAYS = click.IntRange(1, MAX_DAYS)

folder_argument = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
kind_option = click.option(
    "--kind",
    type=click.Choice([str(kind) for kind in Holder]),
    default=str(Holder.SITE),
    show_default=True,
    help="Kind of holder: a site (its federator), a part of a site such as the gateway, a switch, "
    "or a client (publisher or subscriber).",
)
json_option = click.option("--json", is_flag=True, help="Print JSON.")


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except CredentialsError as error:
        raise CertificatesFailed(str(error)) from error
    except OSError as error:
        raise CertificatesFailed(f"{error.filename}: {error.strerror}") from error


@click.group(
    short_help="Make and exchange the certificates of sites, parts, switches and clients.",
    epilog='Example: firedex certificates create-authority certs --name "Port authority"',
)
def certificates() -> None:
    """Make and exchange the certificates with which sites, parts, switches and clients identify.

    FOLDER contains the authority of an organisation (authority.pem, authority.key), the authorities
    of other organisations (trusted/), the certificates of sites (SITE.pem, SITE.key), of parts
    (parts/), switches (switches/) and clients (clients/), and the list of revoked certificates
    (revoked.txt).
    """


@certificates.command(
    "create-authority",
    epilog='Example: firedex certificates create-authority certs --name "Port authority"',
)
@folder_argument
@click.option(
    "--name",
    type=_Checked("TEXT", check_authority_name),
    required=True,
    help="Name of the organisation or authority.",
)
@click.option(
    "--days",
    type=DAYS,
    default=AUTHORITY_DAYS,
    show_default=True,
    help="Number of days for which the authority is valid.",
)
@json_option
def create_authority(folder: Path, name: str, days: int, json: bool) -> None:
    """Create a private authority in FOLDER. An existing authority is never replaced."""
    with _errors():
        made = CertificateFolder(folder).create_authority(name, now=_now(), days=days)
    _print([made], json)


@certificates.command(
    epilog="Example: firedex certificates issue certs gateway --kind part --host 10.0.0.5"
)
@folder_argument
@click.argument("name", type=SITE_NAME, nargs=-1, required=True)
@kind_option
@click.option(
    "--host",
    type=_Checked("DNS_OR_IP", check_host),
    multiple=True,
    help="DNS name or IP address to add to each certificate, for tools that check host names. "
    "Can be given several times.",
)
@click.option(
    "--days",
    type=DAYS,
    default=SITE_DAYS,
    show_default=True,
    help="Number of days for which the certificates are valid.",
)
@click.option("--replace", is_flag=True, help="Replace existing certificates and keys.")
@json_option
def issue(
    folder: Path,
    name: tuple[str, ...],
    kind: str,
    host: tuple[str, ...],
    days: int,
    replace: bool,
    json: bool,
) -> None:
    """Issue a certificate and a private key for each NAME, signed by the authority in FOLDER.

    With --replace, the old certificate stays valid until it expires or is revoked; its fingerprint
    is printed.
    """
    names = tuple(dict.fromkeys(name))
    with _errors():
        made = CertificateFolder(folder).issue(
            names, holder=Holder(kind), hosts=host, now=_now(), days=days, replace=replace
        )
    if json:
        rows = [{**_plain(entry), "replaced_fingerprint": old} for entry, old in made]
        click.echo(json_text.dumps(rows, indent=2))
        return
    for entry, old in made:
        click.echo(_line(entry))
        if old:
            click.echo(f"  replaces the certificate with the SHA-256 fingerprint {old}")


@certificates.command(epilog="Example: firedex certificates export certs > port-authority.pem")
@folder_argument
@click.option("--fingerprint", is_flag=True, help="Print only the SHA-256 fingerprint.")
@json_option
def export(folder: Path, fingerprint: bool, json: bool) -> None:
    """Print the certificate of the own authority in PEM format, for other organisations.

    It contains no secret, but the other organisation must check its fingerprint.
    """
    with _errors():
        authority = CertificateFolder(folder).authority()
    digest = fingerprint_of(authority)
    pem = authority.public_bytes(Encoding.PEM).decode()
    if json:
        name = common_name(authority)
        click.echo(json_text.dumps({"name": name, "fingerprint": digest, "pem": pem}, indent=2))
    elif fingerprint:
        click.echo(digest)
    else:
        click.echo(pem, nl=False)


@certificates.command(
    epilog="Example: firedex certificates trust certs fire-department.pem --fingerprint 5d3e…"
)
@folder_argument
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)
@click.option(
    "--fingerprint",
    type=FINGERPRINT,
    help="SHA-256 fingerprint that the certificate must have, with or without colons.",
)
@click.option("--yes", is_flag=True, help="Trust the certificate without checking its fingerprint.")
@json_option
def trust(folder: Path, file: Path, fingerprint: str | None, yes: bool, json: bool) -> None:
    """Trust the authority of another organisation, whose certificate is in FILE (- for stdin).

    Ask the other organisation for the fingerprint over another channel than the file, for example
    by telephone. An attacker who replaced the file could otherwise connect to your sites.
    """
    with _errors():
        with click.open_file(str(file), "rb") as stream:
            certificate = parse_certificate(stream.read(), file)
        found = fingerprint_of(certificate)
        if fingerprint is not None and fingerprint != found:
            raise CertificatesFailed(
                f"{file}: the SHA-256 fingerprint is {found}, not {fingerprint} (--fingerprint)"
            )
        if fingerprint is None and not yes:
            raise CertificatesFailed(
                f"{file}: {common_name(certificate)}, SHA-256 fingerprint {found}. Nothing was"
                " changed: check the fingerprint and repeat the command with"
                " --fingerprint SHA256, or with --yes to trust it unchecked"
            )
        entry = CertificateFolder(folder).trust(certificate, where=file, now=_now())
    _print([entry], json)


@certificates.command(epilog="Example: firedex certificates revoke certs port")
@folder_argument
@click.argument("certificate", metavar="NAME|FINGERPRINT")
@kind_option
@json_option
def revoke(folder: Path, certificate: str, kind: str, json: bool) -> None:
    """Revoke a certificate, given by the NAME of its holder or by its FINGERPRINT.

    Running federators and gateways that use FOLDER refuse the certificate at once. Other
    folders need the same command with the fingerprint, which is printed.
    """
    with _errors():
        fingerprint, added = CertificateFolder(folder).revoke(
            certificate, holder=Holder(kind), now=_now()
        )
    if json:
        click.echo(json_text.dumps({"fingerprint": fingerprint, "added": added}))
        return
    click.echo(f"{'revoked' if added else 'already revoked'}: {fingerprint}")


@certificates.command(epilog="Example: firedex certificates show certs --json")
@folder_argument
@json_option
def show(folder: Path, json: bool) -> None:
    """List all certificates in FOLDER with their names, expiry dates and fingerprints."""
    with _errors():
        entries = CertificateFolder(folder).entries()
    _print(entries, json, as_list=True)


@certificates.command(
    epilog="Example: firedex certificates invite certs port --address 10.0.0.5:7447"
)
@folder_argument
@click.argument("site", type=SITE_NAME)
@click.option(
    "--address",
    type=HOST_PORT,
    required=True,
    help="Address on which other sites reach the federator of SITE.",
)
@json_option
def invite(folder: Path, site: str, address: tuple[str, int], json: bool) -> None:
    """Print an invitation to connect to SITE: its address, its name and its fingerprint."""
    with _errors():
        invitation = CertificateFolder(folder).invite(site, address)
    if json:
        host, port = invitation.address
        plain = {
            "invitation": str(invitation),
            "address": f"{host}:{port}",
            "site": invitation.site,
            "fingerprint": invitation.fingerprint,
        }
        click.echo(json_text.dumps(plain, indent=2))
        return
    click.echo(str(invitation))


def _now() -> datetime:
    return datetime.now(UTC)


def _print(entries: list[CertificateEntry], json: bool, *, as_list: bool = False) -> None:
    if json:
        plain = [_plain(entry) for entry in entries]
        click.echo(json_text.dumps(plain if as_list else plain[0], indent=2))
        return
    for entry in entries:
        click.echo(_line(entry))


def _plain(entry: CertificateEntry) -> dict[str, Any]:
    return {
        "kind": str(entry.kind),
        "name": entry.name,
        "file": None if entry.file is None else str(entry.file),
        "expires": None if entry.expires is None else entry.expires.isoformat(),
        "expired": _is_expired(entry),
        "revoked": entry.revoked,
        "fingerprint": entry.fingerprint,
        "authority_fingerprint": entry.authority_fingerprint,
    }


def _line(entry: CertificateEntry) -> str:
    if entry.kind is CertificateKind.UNKNOWN:
        return f"revoked: SHA-256 {entry.fingerprint}"
    verb = "EXPIRED" if _is_expired(entry) else "expires"
    revoked = ", REVOKED" if entry.revoked else ""
    date = f"{entry.expires:%Y-%m-%d}"
    return (
        f"{entry.kind} {entry.name} ({entry.file}): {verb} {date}{revoked},"
        f" SHA-256 {entry.fingerprint}"
    )


def _is_expired(entry: CertificateEntry) -> bool:
    return entry.expires is not None and entry.expires < _now()
