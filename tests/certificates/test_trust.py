"""Trusted authorities and revoked certificates: files that change while a federator runs."""

import os
from pathlib import Path

import pytest

from firedex.certificates.trust import RevocationList, TrustAnchors
from tests.support.organisations import Organisation

OTHER_FINGERPRINT = "0123456789abcdef" * 4


def test_revocation_list_follows_its_file(tmp_path: Path) -> None:
    file = tmp_path / "revoked.txt"
    revoked = RevocationList(file)
    assert OTHER_FINGERPRINT not in revoked
    colons = ":".join(OTHER_FINGERPRINT[i : i + 2] for i in range(0, 64, 2)).upper()
    file.write_text(f"# lost laptop\n\n  {colons} # dock\n")
    assert OTHER_FINGERPRINT in revoked
    file.unlink()
    assert OTHER_FINGERPRINT not in revoked


def test_changed_file_of_the_same_size_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "revoked.txt"
    file.write_text("a" * 64)
    os.utime(file, ns=(1, 1))
    revoked = RevocationList(file)
    assert "a" * 64 in revoked
    file.write_text("b" * 64)
    assert "b" * 64 in revoked
    assert "a" * 64 not in revoked


def test_mistake_in_a_changed_file_revokes_more_and_never_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "revoked.txt"
    file.write_text("a" * 64)
    revoked = RevocationList(file)
    file.write_text(f"{'a' * 63}\n{'b' * 64}\n")
    assert "a" * 64 in revoked
    assert "b" * 64 in revoked
    (record,) = caplog.records
    assert f"{file}: line 1: '{'a' * 63}' is not a SHA-256 fingerprint" in record.getMessage()


def test_unreadable_file_leaves_revocations_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "revoked.txt"
    file.write_text("a" * 64)
    revoked = RevocationList(file)
    file.unlink()
    file.mkdir()
    assert "a" * 64 in revoked
    assert f"{file}: Is a directory" in caplog.text


def test_authority_added_while_running_is_trusted(port: Organisation, fire: Organisation) -> None:
    anchors = TrustAnchors(port.path)
    assert len(anchors.current()) == 1
    port.folder.trust(fire.folder.authority(), where=fire.path, now=port.now)
    assert fire.folder.authority() in anchors.current()
    (trusted,) = (port.path / "trusted").iterdir()
    trusted.unlink()
    assert anchors.current() == (port.folder.authority(),)


def test_invalid_authority_file_changes_nothing(
    port: Organisation, caplog: pytest.LogCaptureFixture
) -> None:
    anchors = TrustAnchors(port.path)
    before = anchors.current()
    (port.path / "trusted").mkdir()
    (port.path / "trusted" / "fire.pem").write_text("?")
    assert anchors.current() == before
    assert "fire.pem: is not a certificate" in caplog.text
