"""Which flow a connection belongs to, and the drop rate that goes with it."""

from dataclasses import replace

from parts_site import configuration, flow

from firedex.gateway.flow_table import FlowTable


def test_both_ports_of_a_flow_have_its_drop_rate() -> None:
    table = FlowTable()
    table.follow(configuration(flow("10.0.0.5", drop_rate=0.25, ports=(20_000, 20_001))))
    assert table.drop_rate("10.0.0.5", 20_000) == 0.25
    assert table.drop_rate("10.0.0.5", 20_001) == 0.25


def test_an_unknown_connection_is_unmanaged() -> None:
    table = FlowTable()
    assert table.drop_rate("10.0.0.5", 20_000) == 0.0
    table.follow(configuration(flow("10.0.0.5", drop_rate=1.0)))
    assert table.drop_rate("10.0.0.5", 20_002) == 0.0
    assert table.drop_rate("10.0.0.6", 20_000) == 0.0


def test_what_a_meter_enforces_the_gateway_does_not() -> None:
    table = FlowTable()
    table.follow(configuration(flow("10.0.0.5", drop_rate=0.5, enforced_at="meter")))
    assert table.drop_rate("10.0.0.5", 20_000) == 0.0


def test_a_new_configuration_replaces_the_old_one_whole() -> None:
    table = FlowTable()
    first = flow("10.0.0.5", drop_rate=0.5)
    table.follow(configuration(first, flow("10.0.0.6", number=1, drop_rate=0.75), version=1))
    table.follow(configuration(replace(first, drop_rate=0.125), version=2))
    assert table.version == 2
    assert table.drop_rate("10.0.0.5", 20_001) == 0.125
    assert table.drop_rate("10.0.0.6", 20_000) == 0.0


def test_a_flow_without_endpoints_is_of_no_connection() -> None:
    table = FlowTable()
    table.follow(configuration(replace(flow("10.0.0.5", drop_rate=0.5), endpoints=None)))
    assert table.drop_rate("10.0.0.5", 20_000) == 0.0
