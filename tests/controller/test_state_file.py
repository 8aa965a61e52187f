"""The state file of the controller."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from firedex_controller.state_file import SavedState, read_state, write_state
from firedex_controller.topology import Host, PortRef
from tests.support.desired_examples import flow_rule, network

STATE = SavedState(
    network=network(flow_rule(), version=5),
    hosts=(
        Host(
            hardware_address="00:00:00:00:00:0a",
            address=IPv4Address("10.0.0.1"),
            port=PortRef("a", 3),
        ),
        Host(hardware_address="00:00:00:00:00:0b", port=PortRef("b", 1)),
    ),
    links=frozenset({frozenset({PortRef("a", 1), PortRef("b", 2)})}),
    cut_links=frozenset({frozenset({PortRef("a", 2), PortRef("c", 1)})}),
)


def test_written_state_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "state.json"
    write_state(file, STATE)
    assert read_state(file) == STATE
    assert [path.name for path in file.parent.iterdir()] == ["state.json"]


def test_removed_switches_are_ignored() -> None:
    known = STATE.restrict_to_switches({"b"})
    assert [host.port.switch for host in known.hosts] == ["b"]
    assert known.links == frozenset()
    assert known.network == STATE.network


def test_missing_file_gives_an_empty_state(tmp_path: Path) -> None:
    assert read_state(tmp_path / "none.json") == SavedState()


NO_LINKS = '{"network": null, "hosts": [], "links": %s, "cut_links": []}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"network": 3}',
        '{"network": {}}',
        "\0",
        NO_LINKS % '[[["a", 1]]]',
        NO_LINKS % '[[["a", 1], ["b", 1], ["c", 1]]]',
        NO_LINKS % '[[["a", 1], [1, "b"]]]',
        "[" * 100_000,
    ],
)
def test_invalid_file_is_ignored_with_a_warning(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)
    assert read_state(file) == SavedState()
    assert "is ignored" in caplog.text
