"""Names and fingerprints of certificates."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.certificates.contents import (
    check_site_name,
    common_name,
    is_authority,
    parse_fingerprint,
    site_of,
)
from tests.support.organisations import ROOT_KEY, self_made_authority, subject

NOW = datetime.now(UTC)


@settings(max_examples=30)
@given(st.binary(min_size=32, max_size=32))
def test_fingerprints_are_read_as_openssl_prints_them(digest: bytes) -> None:
    assert parse_fingerprint(digest.hex(":").upper()) == digest.hex()
    assert parse_fingerprint(f" {digest.hex()}\n") == digest.hex()


@pytest.mark.parametrize("text", ["", "ab", "g" * 64, "a" * 65, ":".join(["ab"] * 31), "a:" * 32])
def test_other_texts_are_no_fingerprints(text: str) -> None:
    with pytest.raises(ValueError, match="is not a SHA-256 fingerprint"):
        parse_fingerprint(text)


@pytest.mark.parametrize("name", ["", "-a", "a/b", "..", "a\n", "authority", "a" * 65, "ä"])
def test_invalid_site_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid site name"):
        check_site_name(name)


def test_subject_and_uri_must_name_the_same_site() -> None:
    root = self_made_authority("root")
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject("port"))
        .issuer_name(subject("root"))
        .public_key(ROOT_KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier("urn:firedex:site:fire")]),
            critical=False,
        )
        .sign(ROOT_KEY, hashes.SHA256())
    )
    with pytest.raises(ValueError, match="names the site 'fire', but its subject 'port'"):
        site_of(signed)
    assert not is_authority(signed)
    assert is_authority(root.certificate)


def test_control_characters_of_a_name_are_not_printed() -> None:
    assert common_name(self_made_authority("\x1b[2Jroot").certificate) == "?[2Jroot"
