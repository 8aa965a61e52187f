"""From a change to the network: plan, push, and only then activate."""

import logging
import threading
from datetime import UTC, datetime

from firedex.service.controller_client import ControllerClient
from firedex.service.errors import PushFailed
from firedex.service.registry import Registry
from firedex.service.site_plan import Gateway, make_configuration, site_scenario, switch_rules
from firedex.wire import (
    Configuration,
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
)

__all__ = ["Configurator"]

log = logging.getLogger("firedex.service")


class Configurator:
    """Owns the active configuration. One change at a time; a failed push leaves the old one."""

    def __init__(
        self,
        site: Scenario,
        registry: Registry,
        gateway: Gateway,
        controller: ControllerClient | None,
    ) -> None:
        self._site, self._registry, self._gateway = site, registry, gateway
        self._controller = controller
        self._change = threading.Lock()
        self._active: Configuration | None = None

    @property
    def active(self) -> Configuration | None:
        """What is in force now."""
        return self._active

    def register(
        self, identifier: str, registration: PublisherRegistration | SubscriberRegistration
    ) -> Configuration:
        """Keep a registration and bring the network to the plan that follows from it.

        A registration that makes no valid site is refused before it is kept.
        """
        with self._change:
            self._scenario(registration)
            self._registry.put(identifier, registration)
            return self._reconfigure(f"{identifier} registered")

    def restore(self) -> None:
        """After a start: plan for whoever has registered before, and tell the network."""
        with self._change:
            if self._registry.subscribers():
                try:
                    self._reconfigure("the service started")
                except PushFailed as error:
                    log.warning("%s; it follows with the next change", error)

    def _scenario(
        self, coming: PublisherRegistration | SubscriberRegistration | None = None
    ) -> tuple[Scenario, list[SubscriberRegistration]]:
        publishers = {r.publisher.id: r for r in self._registry.publishers()}
        subscribers = {r.subscriber.id: r for r in self._registry.subscribers()}
        if isinstance(coming, PublisherRegistration):
            publishers[coming.publisher.id] = coming
        elif coming is not None:
            subscribers[coming.subscriber.id] = coming
        everybody = list(subscribers.values())
        return site_scenario(self._site, list(publishers.values()), everybody), everybody

    def _reconfigure(self, reason: str) -> Configuration:
        scenario, subscribers = self._scenario()
        configuration = make_configuration(
            scenario,
            subscribers,
            self._gateway,
            version=self._registry.next_version(),
            created_at=datetime.now(UTC),
            reason=reason,
        )
        if self._controller is not None:
            self._controller.push(switch_rules(scenario, configuration))
        self._active = configuration
        return configuration
