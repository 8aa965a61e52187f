"""The lookup of flows by endpoint, and their drop rates."""

from dataclasses import replace

from firedex.gateway.flow_table import FlowTable
from tests.support.parts_site import configuration, flow


def drop_rate(table: FlowTable, address: str, port: int) -> float | None:
    flow = table.lookup("tcp", address, port)
    return None if flow is None else flow.drop_rate


def test_both_ports_of_a_flow_have_its_drop_rate() -> None:
    table = FlowTable()
    table.apply(configuration(flow("10.0.0.5", drop_rate=0.25, ports=(20_000, 20_001))))
    assert drop_rate(table, "10.0.0.5", 20_000) == 0.25
    assert drop_rate(table, "10.0.0.5", 20_001) == 0.25


def test_connection_without_flow_is_unmanaged() -> None:
    table = FlowTable()
    assert drop_rate(table, "10.0.0.5", 20_000) is None
    table.apply(configuration(flow("10.0.0.5", drop_rate=1.0)))
    assert drop_rate(table, "10.0.0.5", 20_002) is None
    assert drop_rate(table, "10.0.0.6", 20_000) is None


def test_gateway_does_not_enforce_the_drop_rate_of_a_meter() -> None:
    table = FlowTable()
    table.apply(configuration(flow("10.0.0.5", drop_rate=0.5, enforced_at="meter")))
    assert drop_rate(table, "10.0.0.5", 20_000) == 0.0


def test_new_configuration_replaces_all_flows() -> None:
    table = FlowTable()
    first = flow("10.0.0.5", drop_rate=0.5)
    table.apply(configuration(first, flow("10.0.0.6", number=1, drop_rate=0.75), version=1))
    table.apply(configuration(replace(first, drop_rate=0.125), version=2))
    assert table.version == 2
    assert drop_rate(table, "10.0.0.5", 20_001) == 0.125
    assert drop_rate(table, "10.0.0.6", 20_000) is None


def test_flow_without_endpoints_has_no_connections() -> None:
    table = FlowTable()
    table.apply(configuration(replace(flow("10.0.0.5", drop_rate=0.5), endpoints=None)))
    assert drop_rate(table, "10.0.0.5", 20_000) is None
