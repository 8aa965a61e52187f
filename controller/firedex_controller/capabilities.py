"""What switches can do, from themselves and from the agents on their hosts."""

import logging
from collections.abc import Callable, Mapping

from firedex.wire import SwitchCapabilities
from firedex_controller.agent.client import AgentClient
from firedex_controller.errors import ControllerError
from firedex_controller.settings import SwitchSettings
from firedex_controller.switch_session import SwitchSession

__all__ = ["capabilities"]

log = logging.getLogger("firedex.controller")


def capabilities(
    sessions: Mapping[str, SwitchSession],
    switches: Mapping[str, SwitchSettings],
    agent_of: Callable[[SwitchSettings], AgentClient],
) -> list[SwitchCapabilities]:
    """Of every connected switch whose agent answers: of the others it is not known now.

    A switch that its agent does not know has one class.
    """
    found = []
    for name, session in list(sessions.items()):
        try:
            found.append(_of_switch(session, switches[name], agent_of))
        except ControllerError as error:
            log.warning("the agent of switch %s: %s", name, error)
    return found


def _of_switch(
    session: SwitchSession,
    settings: SwitchSettings,
    agent_of: Callable[[SwitchSettings], AgentClient],
) -> SwitchCapabilities:
    wanted = f"{settings.datapath_id:016x}"
    bridge = next((b for b in agent_of(settings).bridges() if b.datapath_id == wanted), None)
    return SwitchCapabilities(
        switch=session.name,
        datapath=bridge.datapath if bridge else "kernel",
        priorities=bridge.priorities if bridge else 1,
        meters=session.has_meters,
        meter_packets_per_second=session.has_packet_meters,
        bundles=session.has_bundles,
    )
