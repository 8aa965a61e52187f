"""Desired networks for the controller's tests."""

from ipaddress import IPv4Address

from firedex.wire import (
    ClassQueue,
    ControlEndpoint,
    DesiredNetwork,
    DesiredSwitch,
    FlowEndpoints,
    FlowRule,
    PacketLimit,
    ShapedPort,
)

GATEWAY = IPv4Address("10.0.0.10")
GATEWAY_PORT = 1884


def flow_rule(
    subscriber: str = "crew",
    flow: int = 0,
    *,
    priority: int = 0,
    address: str = "10.0.0.101",
    first_port: int = 20_000,
    packets_per_second: float = 200.0,
    transport: str = "udp",
) -> FlowRule:
    return FlowRule(
        subscriber=subscriber,
        flow=flow,
        priority=priority,
        endpoints=FlowEndpoints(
            transport=transport,  # type: ignore[arg-type]
            subscriber_address=IPv4Address(address),
            subscriber_ports=(first_port + 2 * flow, first_port + 2 * flow + 1),
            gateway_address=GATEWAY,
            gateway_port=GATEWAY_PORT,
        ),
        limit=PacketLimit(packets_per_second=packets_per_second, burst_packets=200),
    )


def shaped_port(
    classes: int = 8,
    *,
    towards: str | None = None,
    bandwidth_bits_per_second: float = 1e7,
    limit_packets: int = 60,
    guaranteed_bits_per_second: float = 12_000.0,
) -> ShapedPort:
    return ShapedPort(
        towards=towards,
        bandwidth_bits_per_second=bandwidth_bits_per_second,
        classes=tuple(
            ClassQueue(
                priority=priority,
                guaranteed_bits_per_second=guaranteed_bits_per_second,
                limit_packets=limit_packets,
            )
            for priority in range(classes)
        ),
    )


def network(
    *flows: FlowRule,
    version: int = 1,
    switch: str = "core",
    ports: tuple[ShapedPort, ...] = (),
    control: tuple[ControlEndpoint, ...] = (),
) -> DesiredNetwork:
    return DesiredNetwork(
        configuration_version=version,
        switches=(DesiredSwitch(switch=switch, ports=ports, flows=flows),),
        control=control,
    )
