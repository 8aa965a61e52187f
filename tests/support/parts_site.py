"""A small site, and registrations and flows for it.

::

    p0 ─▶ lan (unmanaged) ─▶ broker ─▶ core (managed) ─▶ subscribers
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any

from firedex.wire import (
    Configuration,
    Flow,
    FlowEndpoints,
    LogUtility,
    Publication,
    Publisher,
    PublisherRegistration,
    Scenario,
    Subscriber,
    SubscriberRegistration,
    Subscription,
    Topic,
    from_plain,
)

__all__ = [
    "configuration",
    "flow",
    "publisher",
    "site",
    "subscriber",
]

NO_DROPS: Mapping[str, Any] = {"drop_policy": "flat", "flows_per_subscriber": 2}


def site(*, bandwidth_bits_per_second: float = 5e6, **changes: Any) -> Scenario:
    """Return the site without registrations."""
    document: dict[str, Any] = {
        "name": "parts",
        "transport": "tcp",
        "stamped_events": True,
        "topics": [],
        "network": {
            "switches": [
                {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
                {"id": "core", "bandwidth_bits_per_second": bandwidth_bits_per_second},
            ],
            "broker": {"id": "edge"},
        },
        "planning": {**NO_DROPS, "priorities": 2},
    }
    return from_plain(Scenario, {**document, **changes})


def publisher(
    name: str, rates: Mapping[str, float], *, event_bytes: int = 100
) -> PublisherRegistration:
    """Return the registration of a publisher with its topics."""
    return PublisherRegistration(
        publisher=Publisher(
            id=name,
            switch="lan",
            publications=tuple(
                Publication(topic=topic, rate_per_second=rate) for topic, rate in rates.items()
            ),
        ),
        topics=tuple(Topic(name=topic, event_bytes=event_bytes) for topic in rates),
    )


def subscriber(
    name: str,
    *filters: str,
    address: str = "127.0.0.1",
    switch: str = "core",
    qos: int = 0,
) -> SubscriberRegistration:
    """Return the registration of a subscriber; the first filter has the highest utility."""
    return SubscriberRegistration(
        subscriber=Subscriber(
            id=name,
            switch=switch,
            transport="tcp",
            subscriptions=tuple(
                Subscription(filter=each, utility=LogUtility(weight=100.0 / 10**n), qos=qos)
                for n, each in enumerate(filters)
            ),
        ),
        address=IPv4Address(address),
    )


def flow(
    address: str,
    *,
    number: int = 0,
    drop_rate: float = 0.0,
    ports: tuple[int, int] = (20_000, 20_001),
    enforced_at: Any = "gateway",
    qos: int = 2,
) -> Flow:
    """Return a flow of the subscriber ``crew``; events at QoS 1 and 2 are not dropped."""
    return Flow(
        subscriber="crew",
        flow=number,
        priority=number,
        drop_rate=drop_rate,
        qos=qos,
        enforced_at=enforced_at,
        endpoints=FlowEndpoints(
            transport="tcp",
            subscriber_address=IPv4Address(address),
            subscriber_ports=ports,
            gateway_address=IPv4Address("127.0.0.1"),
            gateway_port=1884,
        ),
    )


def configuration(*flows: Flow, version: int = 1) -> Configuration:
    return Configuration(
        version=version,
        broker="edge",
        created_at=datetime(2025, 3, 1, tzinfo=UTC),
        reason="a test",
        flows=flows,
    )
