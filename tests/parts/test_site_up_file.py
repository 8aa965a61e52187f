"""SITE.yaml: every mistake with its line and its field; and what each part is started with."""

from pathlib import Path

import pytest

from firedex.site_up.parts import Part, Place, parts_of
from firedex.site_up.site_file import read_site
from firedex.yaml_file import InvalidFile, UnreadableFile

CONTROLLER = "controller: {switches: [fireground=0000000000000001]}\n"


def written(folder: Path, text: str) -> Path:
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
        ("broker: {at: 'a:1', listen: 'b:2'}\n", 2, "broker.listen", "has no meaning"),
        ("broker: {configuration: x.conf}\n", 2, "broker.configuration", "there is no such file"),
        ("service: {at: 10.0.0.5}\n", 2, "service.at", "http://HOST:PORT"),
        ("service: {listen: 10.0.0.5:80}\n", 2, "service.open", "must be false"),
        ("service: {open: 1}\n", 2, "service.open", "must be a valid boolean"),
        ("service: {open: false}\n", None, "gateway.token", "is required"),
        ("gateway: {listen: 127.0.0.1:1883}\n", 2, "gateway.listen", "is broker's already"),
        ("gateway: {listen: 0.0.0.0:1884}\n", 2, "gateway.reached_at", "is required"),
        ("gateway: {listen: localhost:1884}\n", 2, "gateway.listen", "is not an IPv4 address"),
        ("gateway: {token: {}}\n", 2, "gateway.token", "either 'environment' or 'file'"),
        ("gateway: {token: {file: none}}\n", 2, "gateway.token.file", "No such file"),
        (
            "gateway: {token: {environment: FDX_NOT_SET}}\n",
            2,
            "gateway.token.environment",
            "is not set",
        ),
        ("controller: {}\n", 2, "controller.switches", "is required"),
        ("controller: {switches: [core=1]}\n", 2, "controller.switches[0]", "there are fireground"),
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
def test_a_mistake_is_named(
    tmp_path: Path, text: str, line: int | None, path: str, message: str
) -> None:
    with pytest.raises(InvalidFile) as raised:
        read_site(written(tmp_path, f"scenario: builtin:high-rise\n{text}"))
    said = str(raised.value.problems[0])
    assert f"{path}: " in said
    assert message in said
    if line is not None:
        assert said.startswith(f"line {line}: ")


def test_mistakes_in_the_scenario_are_told(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("name: x\ntopcs: []\n")
    with pytest.raises(InvalidFile, match=r"(?s)line 1: scenario: .*did you mean 'topics'"):
        read_site(written(tmp_path, "scenario: scenario.yaml\n"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="No such file"):
        read_site(tmp_path / "none.yaml")


def parts(folder: Path, text: str) -> dict[str, Part]:
    site = read_site(written(folder, text))
    place = Place(folder=folder, state=folder / "state", logs=folder / "logs")
    return {part.name: part for part in parts_of(site, place)}


def test_one_line_is_a_site(tmp_path: Path) -> None:
    found = parts(tmp_path, "scenario: builtin:high-rise\n")
    assert list(found) == ["broker", "service", "gateway"]
    assert "--open" in found["service"].command
    assert "--udp-listen=127.0.0.1:1884" in found["gateway"].command
    assert "listener 1883 127.0.0.1\n" in next(iter(found["broker"].files.values()))


def test_a_controller_comes_between_and_shares_a_secret(tmp_path: Path) -> None:
    found = parts(tmp_path, f"scenario: builtin:high-rise\n{CONTROLLER}")
    assert list(found) == ["broker", "controller", "service", "gateway"]
    assert "--controller=http://127.0.0.1:8080" in found["service"].command
    secrets = {
        found[name].environment["FIREDEX_CONTROLLER_TOKEN"] for name in ("controller", "service")
    }
    assert len(secrets) == 1
    assert secrets != {""}
    assert not any(secret in word for secret in secrets for word in found["controller"].command)


def test_parts_elsewhere_are_told_to_the_others(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("fdx_secret\n")
    found = parts(
        tmp_path,
        "scenario: builtin:high-rise\nbroker: {at: 10.0.0.5:1883}\n"
        "controller: {at: http://10.0.0.6:8080}\nservice: {listen: 10.0.0.7:88, open: false}\n"
        "gateway: {listen: 0.0.0.0:1884, reached_at: 10.0.0.7:1884, udp: false,"
        " token: {file: token}}\n",
    )
    assert not found["broker"].command
    assert not found["controller"].command
    assert "--open" not in found["service"].command
    assert "--controller=http://10.0.0.6:8080" in found["service"].command
    assert "--gateway=10.0.0.7:1884" in found["service"].command
    assert "--broker=10.0.0.5:1883" in found["gateway"].command
    assert "--service=http://10.0.0.7:88" in found["gateway"].command
    assert not any(word.startswith("--udp-listen") for word in found["gateway"].command)
    assert found["gateway"].environment == {"FIREDEX_GATEWAY_TOKEN": "fdx_secret"}
    assert found["gateway"].probe.host == "127.0.0.1"


def test_the_example_is_right() -> None:
    read_site(Path(__file__).parents[2] / "examples" / "site.yaml")
