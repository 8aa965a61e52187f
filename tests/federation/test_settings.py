"""Federation files: what is valid, and the messages for what is not."""

from pathlib import Path

import pytest

from firedex.federation.settings import read_federation
from firedex.scenario.yaml_file import InvalidFile

DESIGN_EXAMPLE = """\
name: harbour
sites:
  - id: port
    listen: 127.0.0.1:7447
    broker: 127.0.0.1:1883
    gateway: http://127.0.0.1:8090
    service: http://127.0.0.1:8088
    organisation: port-authority
    scopes: {area: [port]}
    interest: {static: ["alarm/#"], broker_log: true}
  - {id: fire, listen: 127.0.0.1:7448, broker: 127.0.0.1:1884, scopes: {area: [city]}}
links:
  - {between: [port, fire], bandwidth_bits_per_second: 2000000, propagation_seconds: 0.01}
security: {insecure: true}
dimensions:
  - name: area
    scopes: [{id: city}, {id: port, parents: [city], outgoing: "true", incoming: "true"}]
timers: {lease_seconds: 0.5}
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "federation.yaml"
    file.write_text(text)
    return file


def test_example_of_the_design_is_valid(tmp_path: Path) -> None:
    file = read_federation(write(tmp_path, DESIGN_EXAMPLE))
    assert list(file.neighbours("port")) == ["fire"]
    assert file.neighbours("port")["fire"].cost == 11.0


def test_without_links_all_sites_are_neighbours(tmp_path: Path) -> None:
    text = DESIGN_EXAMPLE.replace("links:", "x: 1\nlinks:").split("x: 1")[0]
    text += "  - {id: bus, listen: 127.0.0.1:7449, broker: 127.0.0.1:1885}\n"
    file = read_federation(write(tmp_path, text.replace("scopes: {area: [city]}", "")))
    assert sorted(file.neighbours("bus")) == ["fire", "port"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id: fire", "id: port", "line 11: sites[1].id: 'port' is used twice"),
        ("127.0.0.1:7448", "127.0.0.1:7447", "already the address of site port"),
        ("[port, fire]", "[port, frie]", "line 13: links[0].between[1]: there is no site 'frie'"),
        ("[port, fire]", "[port, port]", "a link needs two sites"),
        ("parents: [city]", "parents: [town]", "there is no scope 'town'"),
        ("area: [city]", "area: [village]", "there is no scope 'village'"),
        ("127.0.0.1:7448", "10.0.0.1:7448", "only if all sites listen on loopback"),
        ("{insecure: true}", "{}", "set either 'certificates' or 'insecure: true'"),
        ("{insecure: true}", "{certificates: none}", "folder not found"),
        ("lease_seconds: 0.5", "lease_seconds: 0", "timers.lease_seconds"),
        ('"alarm/#"', '"alarm/#/x"', "'#' must be the complete last level"),
        ("broker_log", "brokerlog", "brokerlog"),
        ("name: harbour", "membership: closed\nname: harbour", "membership"),
        ("name: harbour", "join: [port]\nname: harbour", "join[0]: 'port' is not an invitation"),
        (
            "name: harbour",
            "join: ['firedex://10.0.0.1:7447/bus']\nname: harbour",
            "join[0]: without certificates, the address must be on loopback",
        ),
        ("id: fire,", "id: fire, authority: ab,", "sites[0].authority: is required, because"),
    ],
)
def test_mistake_is_reported_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in DESIGN_EXAMPLE
    with pytest.raises(InvalidFile) as caught:
        read_federation(write(tmp_path, DESIGN_EXAMPLE.replace(old, new, 1)))
    assert message in str(caught.value)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = DESIGN_EXAMPLE.replace("id: fire", "id: port").replace("parents: [city]", "parents: [x]")
    with pytest.raises(InvalidFile) as caught:
        read_federation(write(tmp_path, text))
    assert len(caught.value.problems) >= 2
