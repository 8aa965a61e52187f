"""Who a peer is and whether it is trusted, over real TLS connections on loopback."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from firedex.certificates.authority import CertificateWithKey, new_certificate
from firedex.certificates.contents import fingerprint_of, parse_certificate
from firedex.certificates.site_credentials import (
    CredentialsError,
    PeerIdentity,
    SiteCredentials,
    explain_tls_error,
    read_credentials,
)
from tests.support.organisations import (
    Organisation,
    self_made_authority,
    trust_each_other,
)

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=100)
PATIENCE_SECONDS = 30.0
OTHER_FINGERPRINT = "0123456789abcdef" * 4


@dataclass
class Connection:
    """What both ends of one connection saw."""

    at_server: PeerIdentity | None = None
    at_client: PeerIdentity | None = None
    server_error: Exception | None = None
    client_error: Exception | None = None
    received: bytes = b""
    version: str | None = None
    resumable: bool = False


def connect(
    server: SiteCredentials,
    client: SiteCredentials,
    *,
    context: ssl.SSLContext | None = None,
    expected_client: str | None = None,
    expected_server: str | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Connection:
    """Connect ``client`` to ``server``; the server sends a line if it accepts the client."""
    seen = Connection()

    async def accept(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        accepted, _ = await loop.sock_accept(listener)
        try:
            transport, _ = await loop.connect_accepted_socket(
                asyncio.Protocol, accepted, ssl=server.server_context()
            )
        except OSError as error:
            seen.server_error = error
            return
        try:
            tls = transport.get_extra_info("ssl_object")
            seen.at_server = server.peer_identity(tls, site=expected_client)
            if not server.is_revoked(seen.at_server.fingerprint):
                transport.write(b"welcome\n")
        except CredentialsError as error:
            seen.server_error = error
        finally:
            transport.close()

    async def call(port: int) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context or client.client_context()
        )
        try:
            tls = writer.get_extra_info("ssl_object")
            seen.at_client = client.peer_identity(tls, site=expected_server)
            seen.version = tls.version()
            seen.received = await reader.read()
            seen.resumable = tls.session is not None and tls.session.has_ticket
        finally:
            writer.close()

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
                tasks.create_task(accept(listener))
                try:
                    await call(listener.getsockname()[1])
                except (CredentialsError, OSError) as error:
                    seen.client_error = error

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())
    return seen


def test_sites_of_one_organisation_identify_each_other(port: Organisation) -> None:
    server, client = port.credentials("port"), port.credentials("dock")
    seen = connect(server, client, expected_client="dock", expected_server="port")
    authority = port.authority_fingerprint
    assert seen.at_server == PeerIdentity(
        site="dock", fingerprint=client.fingerprint, authority_fingerprint=authority
    )
    assert seen.at_client == PeerIdentity(
        site="port", fingerprint=server.fingerprint, authority_fingerprint=authority
    )
    assert seen.received == b"welcome\n"
    assert seen.version == "TLSv1.3"
    assert not seen.resumable, "a resumed session would skip the check of certificates"


def test_sites_of_two_organisations_that_trust_each_other(
    port: Organisation, fire: Organisation
) -> None:
    trust_each_other(port, fire)
    authorities = {"port": port.authority_fingerprint, "fire": fire.authority_fingerprint}
    seen = connect(port.credentials("port", authorities), fire.credentials("fire", authorities))
    assert seen.at_server is not None
    assert seen.at_server.authority_fingerprint == fire.authority_fingerprint
    assert seen.at_client is not None
    assert seen.at_client.authority_fingerprint == port.authority_fingerprint
    assert seen.received == b"welcome\n"


def test_client_of_an_unknown_authority_is_refused(port: Organisation, fire: Organisation) -> None:
    fire.folder.trust(port.folder.authority(), where=port.path, now=NOW)
    seen = connect(port.credentials("port"), fire.credentials("fire"))
    assert isinstance(seen.server_error, ssl.SSLCertVerificationError)
    assert "an authority that is not trusted" in explain_tls_error(seen.server_error)
    assert (seen.at_server, seen.received) == (None, b"")


def test_server_of_an_unknown_authority_is_refused(port: Organisation, fire: Organisation) -> None:
    port.folder.trust(fire.folder.authority(), where=fire.path, now=NOW)
    seen = connect(port.credentials("port"), fire.credentials("fire"))
    assert isinstance(seen.client_error, ssl.SSLCertVerificationError)
    assert "an authority that is not trusted" in explain_tls_error(seen.client_error)
    assert (seen.at_server, seen.at_client) == (None, None)


def test_client_without_a_certificate_is_refused(port: Organisation) -> None:
    context = ssl.create_default_context(cafile=port.path / "authority.pem")
    context.check_hostname = False
    seen = connect(port.credentials("port"), port.credentials("dock"), context=context)
    assert isinstance(seen.server_error, OSError)
    assert explain_tls_error(seen.server_error) == "the peer sent no certificate"
    assert (seen.at_server, seen.received) == (None, b"")


def test_tls_1_2_is_refused(port: Organisation) -> None:
    context = port.credentials("dock").client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    seen = connect(port.credentials("port"), port.credentials("dock"), context=context)
    assert "unsupported protocol" in str(seen.server_error)
    assert (seen.at_server, seen.at_client) == (None, None)


def test_uvloop_accepts_and_refuses_as_asyncio_does(port: Organisation, fire: Organisation) -> None:
    factory = uvloop.new_event_loop
    fire.folder.trust(port.folder.authority(), where=port.path, now=NOW)
    server = port.credentials("port")
    seen = connect(server, port.credentials("dock"), loop_factory=factory)
    assert seen.at_server is not None
    assert (seen.at_server.site, seen.received) == ("dock", b"welcome\n")
    seen = connect(server, fire.credentials("fire"), loop_factory=factory)
    assert isinstance(seen.server_error, ssl.SSLCertVerificationError)
    assert (seen.at_server, seen.received) == (None, b"")


def test_certificate_revoked_while_the_server_runs(port: Organisation) -> None:
    server, client = port.credentials("port"), port.credentials("dock")
    assert connect(server, client).received == b"welcome\n"
    assert not server.is_revoked(client.fingerprint)
    port.folder.revoke("dock", now=NOW)
    assert server.is_revoked(client.fingerprint)
    assert not server.is_revoked(server.fingerprint)
    assert connect(server, client).received == b""


def test_server_with_another_site_name_is_refused(port: Organisation) -> None:
    server, client = port.credentials("port"), port.credentials("dock")
    seen = connect(server, client, expected_server="pier")
    assert isinstance(seen.client_error, CredentialsError)
    assert seen.client_error.where == f"site 'port' with certificate {server.fingerprint}"
    assert seen.client_error.problem == "is not the expected site 'pier'"


def test_client_with_another_site_name_is_refused(port: Organisation) -> None:
    server, client = port.credentials("port"), port.credentials("dock")
    seen = connect(server, client, expected_client="pier")
    assert isinstance(seen.server_error, CredentialsError)
    assert seen.server_error.problem == "is not the expected site 'pier'"
    assert seen.received == b""


def test_expired_certificates_are_refused(port: Organisation) -> None:
    port.folder.issue(["old"], now=LONG_AGO, days=30)
    old = read_credentials(port.path, "old", now=LONG_AGO)
    seen = connect(port.credentials("port"), old)
    assert isinstance(seen.server_error, OSError)
    assert "has expired" in explain_tls_error(seen.server_error)
    assert (seen.at_server, seen.received) == (None, b"")
    seen = connect(old, port.credentials("port"))
    assert isinstance(seen.client_error, OSError)
    assert "has expired" in explain_tls_error(seen.client_error)
    assert seen.at_client is None


def test_organisation_cannot_impersonate_a_site_of_another(
    port: Organisation, fire: Organisation
) -> None:
    trust_each_other(port, fire)
    fire.folder.issue(["dock"], now=NOW)
    impostor = fire.credentials("dock")
    authorities = {
        "port": port.authority_fingerprint,
        "dock": port.authority_fingerprint,
        "fire": fire.authority_fingerprint,
    }
    seen = connect(port.credentials("port", authorities), impostor)
    assert isinstance(seen.server_error, CredentialsError)
    assert f"was issued by the authority {fire.authority_fingerprint}" in str(seen.server_error)
    assert seen.received == b""
    seen = connect(port.credentials("port", authorities), port.credentials("dock"))
    assert seen.received == b"welcome\n"


def test_site_without_a_configured_authority_is_refused(port: Organisation) -> None:
    server = port.credentials("port", {"port": port.authority_fingerprint})
    seen = connect(server, port.credentials("dock"))
    assert "no authority is configured for this site" in str(seen.server_error)


def test_unlisted_site_may_have_any_trusted_authority_if_membership_is_open(
    port: Organisation, fire: Organisation
) -> None:
    trust_each_other(port, fire)
    authorities = {"port": port.authority_fingerprint}
    server = read_credentials(port.path, "port", authorities=authorities, accepts_other_sites=True)
    assert connect(server, fire.credentials("fire")).received == b"welcome\n"
    fire.folder.issue(["port"], now=NOW)
    seen = connect(server, fire.credentials("port"))
    assert "not by the expected" in str(seen.server_error)


def test_server_with_another_fingerprint_than_invited_is_refused(port: Organisation) -> None:
    server = port.credentials("port")
    client = read_credentials(port.path, "dock", fingerprints={"port": OTHER_FINGERPRINT})
    seen = connect(server, client)
    assert isinstance(seen.client_error, CredentialsError)
    assert seen.client_error.where == f"site 'port' with certificate {server.fingerprint}"
    assert f"another certificate, with the fingerprint {OTHER_FINGERPRINT}" in str(
        seen.client_error
    )
    client = read_credentials(port.path, "dock", fingerprints={"port": server.fingerprint})
    assert connect(server, client).received == b"welcome\n"


def test_certificate_issued_by_a_site_is_refused(port: Organisation, tmp_path: Path) -> None:
    """A site must not use its own key to make certificates for other sites."""
    dock = port.credentials("dock")
    own = load(port.path / "dock.pem", port.path / "dock.key")
    forged = tmp_path / "forged"
    write(forged, "port", new_certificate(own, "port", now=NOW, days=1))
    chain = (forged / "port.pem").read_bytes() + (port.path / "dock.pem").read_bytes()
    (forged / "port.pem").write_bytes(chain)
    attacker = replace(dock, certificate_file=forged / "port.pem", key_file=forged / "port.key")
    seen = connect(port.credentials("port"), attacker)
    assert isinstance(seen.server_error, ssl.SSLCertVerificationError)
    assert (seen.at_server, seen.received) == (None, b"")


def test_intermediate_authority_must_be_a_trust_anchor_itself(
    port: Organisation, tmp_path: Path
) -> None:
    """Otherwise nobody could say which authority is responsible for a site name."""
    root, middle = self_made_authority("root"), self_made_authority("middle", issuer="root")
    site = new_certificate(middle, "hospital", now=NOW, days=1)
    hospital = tmp_path / "hospital"
    write(hospital, "hospital", site)
    chain = site.certificate.public_bytes(Encoding.PEM) + pem(middle)
    (hospital / "hospital.pem").write_bytes(chain)
    client = replace(
        port.credentials("dock"),
        certificate_file=hospital / "hospital.pem",
        key_file=hospital / "hospital.key",
    )
    port.folder.trust(root.certificate, where="root", now=NOW)
    seen = connect(port.credentials("port"), client)
    assert "was not issued by a trusted authority itself" in str(seen.server_error)
    (trusted,) = (port.path / "trusted").iterdir()
    trusted.write_bytes(pem(middle))
    seen = connect(port.credentials("port"), client)
    assert seen.at_server is not None
    assert seen.at_server.authority_fingerprint == fingerprint_of(middle.certificate)


def pem(made: CertificateWithKey) -> bytes:
    return made.certificate.public_bytes(Encoding.PEM)


def write(folder: Path, site: str, made: CertificateWithKey) -> None:
    folder.mkdir()
    (folder / f"{site}.pem").write_bytes(pem(made))
    key = made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / f"{site}.key").write_bytes(key)


def load(certificate: Path, key_file: Path) -> CertificateWithKey:
    key = load_pem_private_key(key_file.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    found = parse_certificate(certificate.read_bytes(), certificate)
    return CertificateWithKey(certificate=found, key=key)
