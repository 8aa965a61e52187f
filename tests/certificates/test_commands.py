"""``firedex certificates``: output, files and mistakes of users."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from firedex.certificates.commands import certificates
from firedex.certificates.contents import CredentialsError, read_certificate
from firedex.certificates.invitations import parse_invitation
from firedex.certificates.site_credentials import read_credentials
from firedex.cli import firedex


def run(*arguments: object, text: str | None = None) -> Result:
    return CliRunner().invoke(certificates, [str(each) for each in arguments], input=text)


def run_json(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def refused(*arguments: object, text: str | None = None) -> str:
    result = run(*arguments, text=text)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create two organisations once; tests copy them, because every write waits for the disk."""
    folder = tmp_path_factory.mktemp("made")
    for name, site in (("port", "dock"), ("fire", "station")):
        assert run("create-authority", folder / name, "--name", name).exit_code == 0
        assert run("issue", folder / name, site).exit_code == 0
    return folder


@pytest.fixture
def port(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "port", tmp_path / "port"))


@pytest.fixture
def fire(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "fire", tmp_path / "fire"))


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", sorted(certificates.commands))
def test_help_has_an_example_and_json(name: str) -> None:
    result = CliRunner().invoke(firedex, ["certificates", name, "--help"])
    assert result.exit_code == 0
    assert f"Example: firedex certificates {name} " in " ".join(result.output.split())
    assert "--json" in result.output


# -- create-authority and issue --------------------------------------------------------------------


def test_authority_is_created_with_a_private_key(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "certs"
    created = run_json("create-authority", folder, "--name", "Port authority", "--days", 30)
    assert (created["kind"], created["name"]) == ("authority", "Port authority")
    assert created["fingerprint"] == run("export", folder, "--fingerprint").output.strip()
    assert (folder / "authority.key").stat().st_mode & 0o777 == 0o600
    assert sorted(files(folder)) == ["authority.key", "authority.pem"]


@pytest.mark.parametrize("missing", ["authority.key", "authority.pem", None])
def test_authority_is_never_replaced(port: Path, missing: str | None) -> None:
    if missing:
        (port / missing).unlink()
    before = files(port)
    problem = refused("create-authority", port, "--name", "Other")
    assert "already exists and is not replaced" in problem
    assert str(port / "authority.") in problem
    assert files(port) == before


def test_issued_certificates_are_usable(port: Path) -> None:
    rows = run_json("issue", port, "pier", "quay", "pier", "--host", "10.0.0.5")
    assert [row["name"] for row in rows] == ["pier", "quay"]
    for row in rows:
        credentials = read_credentials(port, row["name"])
        assert credentials.fingerprint == row["fingerprint"]
        assert credentials.key_file.stat().st_mode & 0o777 == 0o600


def test_existing_certificate_is_replaced_only_on_request(port: Path) -> None:
    before = files(port)
    problem = refused("issue", port, "pier", "dock")
    assert f"{port / 'dock.pem'}: already exists; use --replace" in problem
    assert files(port) == before
    old = read_credentials(port, "dock").fingerprint
    shown = run("issue", port, "dock", "--replace").output
    assert f"replaces the certificate with the SHA-256 fingerprint {old}" in shown
    assert read_credentials(port, "dock").fingerprint != old
    assert files(port)["dock.key"] != before["dock.key"]


def test_issue_reports_invalid_site_names_hosts_and_folders(port: Path, tmp_path: Path) -> None:
    assert "Invalid value for 'NAME...': 'a/b'" in refused("issue", port, "a/b")
    assert "Invalid value for '--host': '10.0.0.256'" in refused(
        "issue", port, "pier", "--host", "10.0.0.256"
    )
    assert "Invalid value for '--days'" in refused("issue", port, "pier", "--days", 0)
    too_long = refused("issue", port, "pier", "--days", 3651)
    assert f"{port / 'authority.pem'}: the authority expires on" in too_long
    assert f"{tmp_path / 'none'}: No such file" in refused("issue", tmp_path / "none", "pier")
    assert "Invalid value for '--name'" in refused("create-authority", port, "--name", "")
    assert sorted(files(port)) == ["authority.key", "authority.pem", "dock.key", "dock.pem"]


def test_issue_needs_the_key_of_the_authority(port: Path, fire: Path) -> None:
    shutil.copy(fire / "authority.key", port / "authority.key")
    assert "authority.key: does not belong to authority.pem" in refused("issue", port, "pier")
    (port / "authority.key").write_text("?")
    assert "authority.key: is not a private key in PEM format" in refused("issue", port, "pier")
    (port / "authority.key").unlink()
    assert f"{port / 'authority.key'}: No such file" in refused("issue", port, "pier")


# -- export and trust ------------------------------------------------------------------------------


def test_export_prints_the_certificate_and_no_key(port: Path) -> None:
    assert run("export", port).output == (port / "authority.pem").read_text()
    assert run_json("export", port)["pem"] == (port / "authority.pem").read_text()


def test_trust_requires_the_matching_fingerprint_or_yes(port: Path, fire: Path) -> None:
    file = fire / "authority.pem"
    fingerprint = run("export", fire, "--fingerprint").output.strip()
    problem = refused("trust", port, file)
    assert fingerprint in problem
    assert "--fingerprint SHA256" in problem
    other = "0" * 64
    problem = refused("trust", port, file, "--fingerprint", other)
    assert f"{file}: the SHA-256 fingerprint is {fingerprint}, not {other}" in problem
    assert "Invalid value for '--fingerprint'" in refused(
        "trust", port, file, "--fingerprint", "abc"
    )
    assert not (port / "trusted").exists()
    colons = ":".join(fingerprint[i : i + 2] for i in range(0, 64, 2)).upper()
    row = run_json("trust", port, file, "--fingerprint", colons)
    assert (row["kind"], row["name"], row["fingerprint"]) == ("trusted", "fire", fingerprint)
    assert Path(row["file"]).read_bytes() == file.read_bytes()


def test_trusting_again_changes_nothing(port: Path, fire: Path) -> None:
    exported = run("export", fire).output
    assert run("trust", port, "-", "--yes", text=exported).exit_code == 0
    before = files(port)
    assert len(before) == 5
    assert run("trust", port, "-", "--yes", text=exported).exit_code == 0
    assert run_json("trust", port, port / "authority.pem", "--yes")["kind"] == "authority"
    assert files(port) == before


def test_trust_refuses_other_files(port: Path, fire: Path) -> None:
    assert "station.pem: is not the certificate of an authority" in refused(
        "trust", port, fire / "station.pem", "--yes"
    )
    assert "authority.key: contains a private key" in refused(
        "trust", port, fire / "authority.key", "--yes"
    )
    assert "is not a certificate in PEM format" in refused("trust", port, "-", "--yes", text="?")
    assert "does not exist" in refused("trust", port, fire / "none.pem", "--yes")


# -- revoke, show and invite -----------------------------------------------------------------------


def test_revoke_by_name_and_by_fingerprint(port: Path, fire: Path) -> None:
    dock = read_credentials(port, "dock").fingerprint
    station = read_credentials(fire, "station").fingerprint
    assert run_json("revoke", port, "dock") == {"fingerprint": dock, "added": True}
    assert run("revoke", port, station.upper()).output == f"revoked: {station}\n"
    assert run("revoke", port, dock).output == f"already revoked: {dock}\n"
    lines = (port / "revoked.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [dock, station]
    assert "# dock, " in lines[0]


def test_revoke_keeps_what_users_wrote(port: Path) -> None:
    written = f"# stolen in März\n{'a' * 64}".encode("latin-1")
    (port / "revoked.txt").write_bytes(written)
    assert run("revoke", port, "dock").exit_code == 0
    assert (port / "revoked.txt").read_bytes().startswith(written + b"\n")


def test_revoke_names_what_is_wrong(port: Path) -> None:
    assert "has no certificate of a site 'pier'" in refused("revoke", port, "pier")
    assert "has no certificate of a site 'authority'" in refused("revoke", port, "authority")
    authority = run("export", port, "--fingerprint").output.strip()
    assert "authority.pem: is the certificate of an authority" in refused("revoke", port, authority)
    (port / "revoked.txt").write_text("dock\n")
    assert "revoked.txt: line 1: 'dock' is not" in refused("revoke", port, "dock")


def test_show_lists_everything(port: Path, fire: Path) -> None:
    assert run("trust", port, fire / "authority.pem", "--yes").exit_code == 0
    assert run("revoke", port, "dock").exit_code == 0
    assert run("revoke", port, "a" * 64).exit_code == 0
    rows = run_json("show", port)
    assert [(row["kind"], row["name"], row["revoked"]) for row in rows] == [
        ("authority", "port", False),
        ("trusted", "fire", False),
        ("site", "dock", True),
        ("unknown", None, True),
    ]
    assert rows[2]["authority_fingerprint"] == rows[0]["fingerprint"]
    lines = run("show", port).output.splitlines()
    assert len(lines) == 4
    for row, line in zip(rows, lines, strict=True):
        assert row["fingerprint"] in line
        assert ("revoked" in line.lower()) == row["revoked"]


def test_show_names_a_broken_file(port: Path, tmp_path: Path) -> None:
    (port / "pier.pem").write_text("?")
    assert f"{port / 'pier.pem'}: is not a certificate" in refused("show", port)
    assert f"{tmp_path / 'none'}: is not a folder" in refused("show", tmp_path / "none")


def test_invitation_states_address_site_and_fingerprint(port: Path) -> None:
    printed = run("invite", port, "dock", "--address", "10.0.0.5:7447").output
    assert printed.count("\n") == 1
    invitation = parse_invitation(printed)
    assert (invitation.address, invitation.site) == (("10.0.0.5", 7447), "dock")
    assert invitation.fingerprint == read_credentials(port, "dock").fingerprint
    plain = run_json("invite", port, "dock", "--address", "10.0.0.5:7447")
    assert plain["invitation"] == printed.strip()
    assert plain["address"] == "10.0.0.5:7447"


def test_invite_names_what_is_wrong(port: Path) -> None:
    assert f"{port / 'pier.pem'}: No such file" in refused(
        "invite", port, "pier", "--address", "h:1"
    )
    assert "Invalid value for '--address'" in refused("invite", port, "dock", "--address", "h")
    assert run("revoke", port, "dock").exit_code == 0
    assert "dock.pem: is revoked" in refused("invite", port, "dock", "--address", "h:1")


# -- parts, switches and clients -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "subfolder"), [("part", "parts"), ("switch", "switches"), ("client", "clients")]
)
def test_holders_have_their_own_files_and_kind(port: Path, kind: str, subfolder: str) -> None:
    issued = run_json("issue", port, "dock", "--kind", kind, "--host", "10.0.0.5")
    assert [each["kind"] for each in issued] == [kind]
    assert issued[0]["file"] == str(port / subfolder / "dock.pem")
    assert (port / subfolder / "dock.key").stat().st_mode & 0o777 == 0o600
    listed = {(each["kind"], each["name"]) for each in run_json("show", port)}
    assert listed == {("authority", "port"), ("site", "dock"), (kind, "dock")}
    revoked = run_json("revoke", port, "dock", "--kind", kind)
    assert revoked["fingerprint"] == issued[0]["fingerprint"]
    by_kind = {each["kind"]: each["revoked"] for each in run_json("show", port)}
    assert by_kind == {"authority": False, "site": False, kind: True}


def test_certificate_of_a_part_is_not_one_of_a_site(port: Path) -> None:
    run_json("issue", port, "gateway", "--kind", "part")
    for suffix in ("pem", "key"):
        shutil.copy(port / "parts" / f"gateway.{suffix}", port / f"gateway.{suffix}")
    with pytest.raises(CredentialsError, match="urn:firedex:site:NAME"):
        read_credentials(port, "gateway")


def test_only_sites_and_parts_may_be_servers(port: Path) -> None:
    for kind, may_serve in (("site", True), ("part", True), ("switch", False), ("client", False)):
        issued = run_json("issue", port, f"a-{kind}", "--kind", kind)
        certificate = read_certificate(Path(issued[0]["file"]))
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) is may_serve
        assert ExtendedKeyUsageOID.CLIENT_AUTH in usage
