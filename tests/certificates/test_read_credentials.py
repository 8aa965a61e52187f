"""Reading the credentials of a site from its folder, and the messages for unusable files."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from firedex.certificates.site_credentials import CredentialsError, read_credentials
from tests.support.organisations import Organisation

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=100)
OTHER_FINGERPRINT = "0123456789abcdef" * 4


def test_credentials_state_their_certificate(port: Organisation) -> None:
    credentials = port.credentials("port")
    assert credentials.site == "port"
    assert credentials.certificate_file == port.path / "port.pem"
    assert timedelta(days=800) < credentials.expires - NOW < timedelta(days=826)


def test_key_of_the_authority_is_not_needed(port: Organisation) -> None:
    (port.path / "authority.key").unlink()
    assert port.credentials("port").site == "port"


def test_own_authority_may_be_among_the_trusted_ones(port: Organisation) -> None:
    (port.path / "trusted").mkdir()
    (port.path / "authority.pem").rename(port.path / "trusted" / "own.pem")
    assert port.credentials("port").site == "port"


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "where", "problem"),
    [
        (lambda at: (at / "port.pem").unlink(), "port.pem", "No such file"),
        (lambda at: (at / "port.key").unlink(), "port.key", "No such file"),
        (lambda at: (at / "port.pem").write_text("?"), "port.pem", "is not a certificate"),
        (lambda at: (at / "port.key").write_text("?"), "port.key", "is not a private key"),
        (
            lambda at: (at / "port.pem").write_bytes((at / "port.key").read_bytes()),
            "port.pem",
            "contains a private key",
        ),
        (
            lambda at: (at / "port.pem").write_bytes((at / "port.pem").read_bytes() * 2),
            "port.pem",
            "contains 2 certificates",
        ),
        (
            lambda at: (at / "dock.key").replace(at / "port.key"),
            "port.key",
            "does not belong to port.pem",
        ),
        (
            lambda at: (at / "dock.pem").replace(at / "port.pem"),
            "port.pem",
            "is the certificate of the site 'dock', not of 'port'",
        ),
        (
            lambda at: (at / "authority.pem").replace(at / "port.pem"),
            "port.pem",
            "must have one subject alternative name",
        ),
        (lambda at: (at / "authority.pem").unlink(), "port.pem", "was not issued by"),
        (
            lambda at: (at / "dock.pem").replace(at / "authority.pem"),
            "authority.pem",
            "is not the certificate of an authority",
        ),
        (
            lambda at: (at / "revoked.txt").write_text(f"{OTHER_FINGERPRINT}\nport\n"),
            "revoked.txt",
            "line 2: 'port' is not a SHA-256 fingerprint",
        ),
    ],
)
def test_unusable_files_are_named(
    port: Organisation, damage: Damage, where: str, problem: str
) -> None:
    damage(port.path)
    with pytest.raises(CredentialsError) as caught:
        port.credentials("port")
    assert caught.value.where == str(port.path / where)
    assert problem in caught.value.problem


def test_own_certificate_must_be_valid_now(port: Organisation) -> None:
    with pytest.raises(CredentialsError, match=r"port\.pem: is not valid before"):
        read_credentials(port.path, "port", now=LONG_AGO)
    with pytest.raises(CredentialsError, match=r"port\.pem: expired on .* --replace"):
        read_credentials(port.path, "port", now=NOW + timedelta(days=900))


def test_own_certificate_must_not_be_revoked(port: Organisation) -> None:
    port.folder.revoke("port", now=NOW)
    with pytest.raises(CredentialsError, match=r"port\.pem: is revoked in .*revoked\.txt"):
        port.credentials("port")


def test_arguments_are_checked(port: Organisation) -> None:
    with pytest.raises(CredentialsError, match=r"'\.\./port' is not a valid site name"):
        port.credentials("../port")
    with pytest.raises(CredentialsError, match="authority of site 'dock': 'ab' is not a SHA-256"):
        port.credentials("port", {"dock": "ab"})


def test_key_that_others_may_read_is_a_warning(
    port: Organisation, caplog: pytest.LogCaptureFixture
) -> None:
    port.credentials("port")
    assert caplog.records == []
    (port.path / "port.key").chmod(0o640)
    port.credentials("port")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"chmod 600 {port.path / 'port.key'}" in record.getMessage()


def test_key_that_changed_after_reading_is_an_error(port: Organisation) -> None:
    credentials = port.credentials("port")
    (port.path / "dock.key").replace(port.path / "port.key")
    with pytest.raises(CredentialsError, match=r"port\.pem: cannot be used with .*port\.key"):
        credentials.server_context()
