"""The commands that give a port its queues: as lists, without running any."""

from pathlib import Path

import pytest
from parts_site import switch_rules_of

from firedex_controller.errors import QueuesNotApplied
from firedex_controller.queue_commands import apply_queues, leaf_commands, qos_command

QUEUES = switch_rules_of(priorities=(0, 1, 7)).queues


def test_one_transaction_makes_the_tree() -> None:
    command = qos_command("s1-eth3", 5e6, QUEUES)
    assert command[0] == "ovs-vsctl"
    assert command[command.index("port") + 1] == "s1-eth3"
    assert "type=linux-htb" in command
    assert command.count("other-config:max-rate=5000000") == 1 + len(QUEUES)
    for number in (0, 1, 7):
        assert f"queues:{number}=@q{number}" in command
        at = command.index(f"--id=@q{number}")
        assert f"other-config:priority={number}" in command[at:]
    assert command.count("other-config:min-rate=12000") == len(QUEUES)


def test_rates_are_whole_numbers_without_exponents() -> None:
    command = qos_command("p", 1.25e9 + 0.4, QUEUES)
    assert "other-config:max-rate=1250000000" in command


def test_leaves_drop_their_oldest_packet() -> None:
    leaves = [command for command in leaf_commands("s1-eth3", QUEUES) if "qdisc" in command]
    assert [command[command.index("parent") + 1] for command in leaves] == ["1:1", "1:2", "1:8"]
    assert all(command[-3:] == ["pfifo_head_drop", "limit", "60"] for command in leaves)
    handles = [command[command.index("handle") + 1] for command in leaves]
    assert len(set(handles)) == len(handles)
    assert "1:" not in handles


def test_filters_lead_from_mark_to_class() -> None:
    filters = [command for command in leaf_commands("s1-eth3", QUEUES) if "filter" in command]
    found = {}
    for command in filters:
        at = command.index("dsfield")
        assert command[at + 2] == "0xfc"
        found[command[command.index("flowid") + 1]] = int(command[at + 1], 16)
    assert found == {f"1:{q.priority + 1}": q.dscp << 2 for q in QUEUES}


def test_class_numbers_are_hexadecimal_as_tc_reads_them() -> None:
    leaf = leaf_commands("p", switch_rules_of(priorities=(0, 15)).queues)[-1]
    assert leaf[-1] == "1:10"


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(QueuesNotApplied, match="ovs-vsctl"):
        apply_queues("s1-eth3", 5e6, QUEUES)


def test_a_tool_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "ovs-vsctl"
    tool.write_text("#!/bin/sh\necho 'no port named s1-eth3' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(QueuesNotApplied, match="no port named s1-eth3") as raised:
        apply_queues("s1-eth3", 5e6, QUEUES)
    assert raised.value.command.startswith("ovs-vsctl ")
