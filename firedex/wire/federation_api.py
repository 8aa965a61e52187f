"""Messages between the parts of one site that exchange events with other sites."""

from firedex.wire.mqtt_names import FilterName
from firedex.wire.values import Count, Identifier, PositiveCount, value
from firedex.wire.workload import QualityOfService

__all__ = ["FilterInterest", "InterestReport"]


@value
class FilterInterest:
    """A topic filter, a granted QoS, and the number of clients subscribed with both."""

    filter: FilterName
    qos: QualityOfService
    clients: PositiveCount


@value
class InterestReport:
    """The topic filters that the clients of a gateway are subscribed to.

    ``version`` changes with every change of the report. Versions of one ``instance`` (one run of
    the gateway) can be compared. ``unknown_sessions``: clients with subscriptions that the gateway
    does not know; they may have subscribed to anything.
    """

    instance: Identifier
    version: Count
    unknown_sessions: Count = 0
    filters: tuple[FilterInterest, ...] = ()
