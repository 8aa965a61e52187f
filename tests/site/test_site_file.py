"""The site file: problems have a line and a field, and each part gets its options."""

from pathlib import Path

import pytest

from firedex.scenario import InvalidFile, UnreadableFile
from firedex.site.parts import Part, SitePaths, site_parts
from firedex.site.site_file import read_site

CONTROLLER = "controller: {switches: [fireground=0000000000000001]}\n"


FEDERATION = "name: x\nsites: [{id: port, listen: 127.0.0.1:7447, broker: 127.0.0.1:1883}]\n"


def write_site_file(folder: Path, text: str) -> Path:
    file = folder / "site.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "line", "path", "message"),
    [
        ("brokr: {}\n", 2, "brokr", "did you mean 'broker'"),
        ("broker: {listen: 1883}\n", 2, "broker.listen", "must be a valid string"),
        ("broker: {listen: here}\n", 2, "broker.listen", "is not HOST:PORT"),
        ("broker:\n  lissten: a:1\n", 3, "broker.lissten", "did you mean 'listen'"),
        ("broker: {at: 'a:1', listen: 'b:2'}\n", 2, "broker.listen", "has no effect"),
        ("broker: {configuration: x.conf}\n", 2, "broker.configuration", "file not found"),
        ("service: {at: 10.0.0.5}\n", 2, "service.at", "http://HOST:PORT"),
        ("service: {listen: 10.0.0.5:80}\n", 2, "service.open", "must be false"),
        ("service: {open: 1}\n", 2, "service.open", "must be a valid boolean"),
        ("service: {open: false}\n", None, "gateway.token", "required"),
        (
            "gateway: {listen: 127.0.0.1:1883}\n",
            2,
            "gateway.listen",
            "already the address of the broker",
        ),
        (
            "gateway: {interest: 127.0.0.1:8088}\n",
            2,
            "gateway.interest",
            "already the address of the service",
        ),
        ("gateway: {listen: 0.0.0.0:1884}\n", 2, "gateway.reached_at", "required"),
        ("gateway: {listen: localhost:1884}\n", 2, "gateway.listen", "is not an IPv4 address"),
        ("gateway: {token: {}}\n", 2, "gateway.token", "either 'environment' or 'file'"),
        ("gateway: {token: {file: none}}\n", 2, "gateway.token.file", "No such file"),
        (
            "gateway: {token: {environment: FDX_NOT_SET}}\n",
            2,
            "gateway.token.environment",
            "is not set",
        ),
        ("controller: {}\n", 2, "controller.switches", "required"),
        (
            "controller: {switches: [core=1]}\n",
            2,
            "controller.switches[0]",
            "choose from fireground",
        ),
        (
            "controller: {switches: [fireground=1], agents: [fireground=x]}\n",
            2,
            "controller.agents[0]",
            "http://HOST:PORT",
        ),
        ("controller: {switches: [core]}\n", 2, "controller.switches[0]", "is not a switch"),
        ("broker: {}\nbroker: {}\n", 3, "broker", "is given twice"),
    ],
)
def test_problem_is_reported_with_its_location(
    tmp_path: Path, text: str, line: int | None, path: str, message: str
) -> None:
    with pytest.raises(InvalidFile) as raised:
        read_site(write_site_file(tmp_path, f"scenario: builtin:high-rise\n{text}"))
    problem = str(raised.value.problems[0])
    assert f"{path}: " in problem
    assert message in problem
    if line is not None:
        assert problem.startswith(f"line {line}: ")


def test_problems_of_the_scenario_are_reported(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("name: x\ntopcs: []\n")
    with pytest.raises(InvalidFile, match=r"(?s)line 1: scenario: .*did you mean 'topics'"):
        read_site(write_site_file(tmp_path, "scenario: scenario.yaml\n"))


def test_missing_site_file_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="No such file"):
        read_site(tmp_path / "none.yaml")


def read_parts(folder: Path, text: str) -> dict[str, Part]:
    site = read_site(write_site_file(folder, text))
    paths = SitePaths(folder=folder, state=folder / "state", logs=folder / "logs")
    return {part.name: part for part in site_parts(site, paths)}


def test_minimal_site_uses_defaults(tmp_path: Path) -> None:
    parts = read_parts(tmp_path, "scenario: builtin:high-rise\n")
    assert list(parts) == ["broker", "service", "gateway"]
    assert "--open" in parts["service"].command
    assert "--udp-listen=127.0.0.1:1884" in parts["gateway"].command
    assert "listener 1883 127.0.0.1\n" in next(iter(parts["broker"].files.values()))


def test_controller_and_service_share_a_token(tmp_path: Path) -> None:
    parts = read_parts(tmp_path, f"scenario: builtin:high-rise\n{CONTROLLER}")
    assert list(parts) == ["broker", "controller", "service", "gateway"]
    assert "--controller=http://127.0.0.1:8080" in parts["service"].command
    secrets = {
        parts[name].environment["FIREDEX_CONTROLLER_TOKEN"] for name in ("controller", "service")
    }
    assert len(secrets) == 1
    assert secrets != {""}
    assert not any(secret in word for secret in secrets for word in parts["controller"].command)


def test_addresses_of_external_parts_are_passed_to_the_others(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("fdx_secret\n")
    parts = read_parts(
        tmp_path,
        "scenario: builtin:high-rise\nbroker: {at: 10.0.0.5:1883}\n"
        "controller: {at: http://10.0.0.6:8080}\nservice: {listen: 10.0.0.7:88, open: false}\n"
        "gateway: {listen: 0.0.0.0:1884, reached_at: 10.0.0.7:1884, udp: false,"
        " token: {file: token}}\n",
    )
    assert not parts["broker"].command
    assert not parts["controller"].command
    assert "--open" not in parts["service"].command
    assert "--controller=http://10.0.0.6:8080" in parts["service"].command
    assert "--gateway=10.0.0.7:1884" in parts["service"].command
    assert "--broker=10.0.0.5:1883" in parts["gateway"].command
    assert "--service=http://10.0.0.7:88" in parts["gateway"].command
    assert not any(word.startswith("--udp-listen") for word in parts["gateway"].command)
    assert parts["gateway"].environment == {"FIREDEX_GATEWAY_TOKEN": "fdx_secret"}
    assert parts["gateway"].probe.host == "127.0.0.1"


def test_gateway_with_interest_reports_and_stores_it(tmp_path: Path) -> None:
    commands = read_parts(
        tmp_path, "scenario: builtin:high-rise\ngateway: {interest: 127.0.0.1:8090}\n"
    )
    assert "--interest=127.0.0.1:8090" in commands["gateway"].command
    assert f"--state={tmp_path / 'state' / 'gateway.sqlite'}" in commands["gateway"].command
    assert commands["gateway"].listens == ("127.0.0.1:1884", "127.0.0.1:8090")


def test_federation_starts_a_federator(tmp_path: Path) -> None:
    (tmp_path / "federation.yaml").write_text(FEDERATION)
    text = "scenario: builtin:high-rise\nfederation: {file: federation.yaml, site: port}\n"
    part = read_parts(tmp_path, text)["federator"]
    assert part.listens == ("127.0.0.1:7447",)
    state = tmp_path / "state" / "federator"
    assert part.command[-3:] == (
        str(tmp_path / "federation.yaml"),
        "--site=port",
        f"--state={state}",
    )


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("{file: none.yaml, site: port}", "federation.file: cannot read"),
        ("{file: federation.yaml, site: bus}", "federation.site: there is no site 'bus'"),
    ],
)
def test_federation_problems_are_reported(tmp_path: Path, part: str, message: str) -> None:
    (tmp_path / "federation.yaml").write_text(FEDERATION)
    with pytest.raises(InvalidFile, match=message):
        read_parts(tmp_path, f"scenario: builtin:high-rise\nfederation: {part}\n")


def test_example_site_file_is_valid() -> None:
    read_site(Path(__file__).parents[2] / "examples" / "site.yaml")
