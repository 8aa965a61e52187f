"""A folder of certificates as a library; `test_commands` tests its operations."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from firedex.certificates.authority import new_authority
from firedex.certificates.contents import CredentialsError
from tests.support.organisations import organisation

NOW = datetime.now(UTC)


def test_site_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    port = organisation(tmp_path / "port", "dock")
    with pytest.raises(CredentialsError, match=r"'\.\./dock' is not a valid site name"):
        port.folder.issue(["../dock"], now=NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["port"]


def test_expired_authority_is_not_trusted(tmp_path: Path) -> None:
    port = organisation(tmp_path / "port", "dock")
    old = new_authority("old", now=NOW - timedelta(days=9), days=5)
    with pytest.raises(CredentialsError, match=r"old\.pem: expired on"):
        port.folder.trust(old.certificate, where="old.pem", now=NOW)


def test_revocations_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    port = organisation(tmp_path / "port", "dock")
    fingerprints = {digit * 64 for digit in "0123456789"}

    def revoke(fingerprint: str) -> None:
        port.folder.revoke(fingerprint, now=NOW)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(revoke, fingerprints))
    lines = (port.path / "revoked.txt").read_text().splitlines()
    assert {line.split()[0] for line in lines} == fingerprints
