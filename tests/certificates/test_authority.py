"""The certificates that an authority makes, checked by OpenSSL."""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from firedex.certificates.authority import (
    check_authority_name,
    check_host,
    new_authority,
    new_certificate,
)
from firedex.certificates.contents import site_of

NOW = datetime.now(UTC)


def test_authority_may_not_issue_other_authorities() -> None:
    made = new_authority("Port authority", now=NOW).certificate
    basic = made.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (basic.ca, basic.path_length) == (True, 0)


def test_site_certificate_names_site_and_hosts() -> None:
    authority = new_authority("Port authority", now=NOW)
    hosts = ["port.example", "10.0.0.5", "::1"]
    made = new_certificate(authority, "port", hosts=hosts, now=NOW).certificate
    assert site_of(made) == "port"
    assert made.not_valid_before_utc < NOW - timedelta(minutes=30), "clocks of sites differ"
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["port.example"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "::1"]


@pytest.mark.parametrize("purpose", ["sslserver", "sslclient"])
def test_openssl_accepts_the_certificate_as_server_and_as_client(
    purpose: str, tmp_path: Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (apt-get install openssl)")
    authority = new_authority("Port authority", now=NOW)
    made = new_certificate(authority, "port", hosts=["port.example"], now=NOW)
    anchor, site = tmp_path / "authority.pem", tmp_path / "port.pem"
    anchor.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    site.write_bytes(made.certificate.public_bytes(Encoding.PEM))
    checks = ["-x509_strict", "-purpose", purpose, "-verify_hostname", "port.example"]
    done = subprocess.run(
        ["openssl", "verify", *checks, "-CAfile", str(anchor), str(site)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{site}: OK\n"), done.stderr


def test_certificate_is_not_valid_for_longer_than_its_authority() -> None:
    authority = new_authority("Port authority", now=NOW, days=10)
    new_certificate(authority, "port", now=NOW, days=10)
    with pytest.raises(ValueError, match=r"the authority expires on .* use fewer days"):
        new_certificate(authority, "port", now=NOW, days=11)


@pytest.mark.parametrize("host", ["", "-a", "a..b", "a_b", "10.0.0.256", "a:1", "ä.example", "*"])
def test_invalid_hosts_are_refused(host: str) -> None:
    with pytest.raises(ValueError, match="is neither a DNS name nor an IP address"):
        check_host(host)


@pytest.mark.parametrize("name", ["", " a", "a" * 65, "a\nb"])
def test_invalid_names_of_authorities_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name"):
        check_authority_name(name)
