"""A subscriber's registration at the service: made, renewed, and taken back if it is to be."""

import logging
from ipaddress import IPv4Address

from firedex.wire import Configuration, Subscriber, SubscriberRegistration, Subscription
from firedex.wire.workload import Transport
from firedex_clients.errors import NotInForce, ServiceAbsent, ServiceRefused
from firedex_clients.service_client import ServiceClient

__all__ = ["OwnRegistration"]

log = logging.getLogger("firedex.clients")


class OwnRegistration:
    """Who a subscriber is and where; with ``sign_off`` it is taken back in the end."""

    def __init__(
        self,
        service: ServiceClient,
        *,
        name: str,
        switch: str,
        role: str,
        transport: Transport,
        address: IPv4Address,
        sign_off: bool,
    ) -> None:
        self._service, self._name, self._switch, self._role = service, name, switch, role
        self._transport, self._address, self._sign_off = transport, address, sign_off
        self._may_be_there = False

    def put(self, subscriptions: tuple[Subscription, ...]) -> Configuration:
        """Register with all that is wanted; answered when the network follows."""
        registration = SubscriberRegistration(
            subscriber=Subscriber(
                id=self._name,
                switch=self._switch,
                role=self._role,
                transport=self._transport,
                subscriptions=subscriptions,
            ),
            address=self._address,
        )
        was_there, self._may_be_there = self._may_be_there, True
        try:
            return self._service.register_subscriber(registration)
        except (NotInForce, ServiceAbsent):
            raise  # it may have been taken all the same
        except ServiceRefused:
            self._may_be_there = was_there
            raise

    def leave(self) -> None:
        """Take it back, if that was asked for and there may be anything to take back."""
        if self._sign_off and self._may_be_there:
            self._may_be_there = False
            try:
                self._service.remove_subscriber(self._name)
            except ServiceRefused as error:
                log.warning("%s: not signed off: %s", self._name, error)
