"""What a controller finds again after it was killed."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest
from desired_examples import flow_rule, network

from firedex_controller.kept_state import KeptState, read_kept_state, write_kept_state
from firedex_controller.statistics_window import CounterWindow
from firedex_controller.topology import Host, PortRef

STATE = KeptState(
    network=network(flow_rule(), version=5),
    hosts=(
        Host(
            hardware_address="00:00:00:00:00:0a",
            address=IPv4Address("10.0.0.1"),
            place=PortRef("a", 3),
        ),
        Host(hardware_address="00:00:00:00:00:0b", place=PortRef("b", 1)),
    ),
    links=frozenset({frozenset({PortRef("a", 1), PortRef("b", 2)})}),
    cut_links=frozenset({frozenset({PortRef("a", 2), PortRef("c", 1)})}),
)


def test_it_is_found_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "state.json"
    write_kept_state(file, STATE)
    assert read_kept_state(file) == STATE
    assert [path.name for path in file.parent.iterdir()] == ["state.json"]


def test_only_what_is_about_known_switches_is_used() -> None:
    known = STATE.of_switches({"b"})
    assert [host.place.switch for host in known.hosts] == ["b"]
    assert known.links == frozenset()
    assert known.network == STATE.network


def test_at_first_there_is_nothing(tmp_path: Path) -> None:
    assert read_kept_state(tmp_path / "none.json") == KeptState()


NO_LINKS = '{"network": null, "hosts": [], "links": %s}'


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
def test_what_cannot_be_read_is_said_and_not_used(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)
    assert read_kept_state(file) == KeptState()
    assert "is not used" in caplog.text


def test_rates_are_what_was_counted_over_the_window() -> None:
    window = CounterWindow(seconds=10.0)
    for second in range(30):
        window.add(float(second), {"a": (100 * second, 7)})
    assert window.span_seconds == 10.0
    assert window.rates("a") == (100.0, 0.0)


def test_a_counter_that_begins_anew_gives_no_negative_rate() -> None:
    window = CounterWindow(seconds=10.0)
    window.add(0.0, {"a": (1000,)})
    window.add(2.0, {"a": (10,), "b": (4,)})
    assert window.rates("a") == (5.0,)
    assert window.rates("b") == (2.0,)
