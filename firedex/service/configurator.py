"""From a change to the network: plan, push, and only then activate."""

import logging
import threading
from datetime import UTC, datetime

from firedex.planning import PlanningError
from firedex.service.controller_client import ControllerClient
from firedex.service.desired_network import desired_network
from firedex.service.errors import ServiceError
from firedex.service.registry import Registry
from firedex.service.site_plan import Gateway, make_configuration, site_scenario
from firedex.wire import (
    Configuration,
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
    WireError,
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

        What makes no valid site, or cannot be planned, is refused before it is kept. What the
        network does not take yet is kept: it follows with the next change.
        """
        with self._change:
            scenario, configuration = self._plan(f"{identifier} registered", registration)
            self._registry.put(identifier, registration)
            return self._bring_into_force(scenario, configuration)

    def restore(self) -> None:
        """After a start: plan for whoever has registered before, and tell the network."""
        with self._change:
            if not self._registry.subscribers():
                return
            try:
                self._bring_into_force(*self._plan("the service started"))
            except (PlanningError, ServiceError, WireError) as error:
                log.warning("no configuration yet: %s", error)

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

    def _plan(
        self,
        reason: str,
        coming: PublisherRegistration | SubscriberRegistration | None = None,
    ) -> tuple[Scenario, Configuration]:
        scenario, subscribers = self._scenario(coming)
        configuration = make_configuration(
            scenario,
            subscribers,
            self._gateway,
            before=self._active or self._registry.last_configuration(),
            version=self._registry.next_version(),
            created_at=datetime.now(UTC),
            reason=reason,
        )
        return scenario, configuration

    def _bring_into_force(self, scenario: Scenario, configuration: Configuration) -> Configuration:
        if self._controller is not None:
            self._controller.push(desired_network(scenario, configuration))
        self._registry.keep_configuration(configuration)
        self._active = configuration
        return configuration
