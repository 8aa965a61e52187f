"""Invitations: writing, reading and checking."""

import string
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.certificates.invitations import Invitation, invitation_problem, parse_invitation
from firedex.federation.commands import federator

OTHER_FINGERPRINT = "0123456789abcdef" * 4


@settings(max_examples=30)
@given(
    st.text(string.ascii_letters + string.digits, min_size=1, max_size=4),
    st.text(string.ascii_letters + string.digits + "_.:@-", max_size=60),
    st.integers(1, 65_535),
)
def test_invitation_is_one_word_that_can_be_read_back(
    start: str, rest: str, port_number: int
) -> None:
    invitation = Invitation(
        address=("fire.example", port_number), site=start + rest, fingerprint=OTHER_FINGERPRINT
    )
    text = str(invitation)
    assert text.split() == [text]
    assert parse_invitation(f"{text}\n") == invitation


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not an invitation"),
        (f"https://h:1/port/{OTHER_FINGERPRINT}", "is not an invitation"),
        (f"firedex://h:1/port/{OTHER_FINGERPRINT}/x", "is not an invitation"),
        (f"firedex://h/port/{OTHER_FINGERPRINT}", "is not HOST:PORT"),
        (f"firedex://h:1/po%2Frt/{OTHER_FINGERPRINT}", "is not a valid site name"),
        ("firedex://h:1/port/ab", "is not a SHA-256 fingerprint"),
    ],
)
def test_invalid_invitations_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_invitation(text)


def test_invitation_without_certificates_has_no_fingerprint() -> None:
    invitation = Invitation(address=("127.0.0.1", 7447), site="port")
    assert str(invitation) == "firedex://127.0.0.1:7447/port"
    assert parse_invitation(str(invitation)) == invitation


@pytest.mark.parametrize(
    ("text", "has_certificates", "problem"),
    [
        (f"firedex://fire.example:1/port/{OTHER_FINGERPRINT}", True, None),
        ("firedex://127.0.0.1:1/port", False, None),
        ("firedex://127.0.0.1:1/port", True, "must end with a SHA-256 fingerprint"),
        (f"firedex://127.0.0.1:1/port/{OTHER_FINGERPRINT}", False, "has no certificates"),
        ("firedex://10.0.0.1:1/port", False, "must be on loopback, not 10.0.0.1"),
    ],
)
def test_invitation_must_fit_the_security_of_the_site(
    text: str, has_certificates: bool, problem: str | None
) -> None:
    found = invitation_problem(parse_invitation(text), has_certificates=has_certificates)
    assert (found is None) == (problem is None)
    assert problem is None or problem in (found or "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("port", "'port' is not an invitation"),
        ("firedex://10.0.0.1:1/port", "the address must be on loopback"),
        ("firedex://127.0.0.1:1/bus", "an invitation names this site (bus)"),
    ],
)
def test_option_join_is_checked(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text("name: x\nsites: [{id: bus, listen: 127.0.0.1:1, broker: 127.0.0.1:2}]\n")
    result = CliRunner().invoke(federator, [str(file), "--site", "bus", "--join", text])
    assert result.exit_code == 2
    assert "--join" in result.output
    assert problem in " ".join(result.output.split())
