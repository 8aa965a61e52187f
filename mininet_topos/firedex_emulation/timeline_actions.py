"""What of a timeline is done to the site itself: phases, bandwidths, links, kills."""

import json
import time
from dataclasses import replace

from firedex.service_access import ServiceAccess, ServiceAccessError
from firedex.wire import Network, Switch, from_plain, to_json
from firedex.wire.incident import PhaseChange
from firedex.wire.timeline import BandwidthChange, LinkChange, PartKill, PhaseBegins, TimelineEvent
from firedex_emulation.errors import EmulationError
from firedex_emulation.observation import Action
from firedex_emulation.stage import Stage

__all__ = ["carried_out", "described"]


def described(event: TimelineEvent) -> str:
    """In a few words, for a report."""
    match event:
        case BandwidthChange():
            return f"{event.switch}: {event.bandwidth_bits_per_second / 1e6:g} Mbit/s"
        case LinkChange():
            return f"{event.from_}–{event.to} {'up' if event.up else 'down'}"
        case PartKill():
            return f"{event.part} killed"
        case PhaseBegins():
            return f"phase {event.phase}"
    return event.kind


def carried_out(event: TimelineEvent, stage: Stage) -> Action:
    """Do it; what goes wrong is part of what is noted."""
    asked = time.time()
    change, trouble = None, None
    try:
        match event:
            case PhaseBegins():
                body = to_json(PhaseChange(phase=event.phase))
                change = _changed(stage.service, "PUT", "/v1/incident/phase", body)
            case BandwidthChange():
                change = _set_bandwidth(stage.service, event)
            case LinkChange():
                stage.set_link(event.from_, event.to, up=event.up)
            case PartKill():
                stage.kill(event.part, event.down_seconds)
    except (ServiceAccessError, EmulationError) as error:
        trouble = str(error)
    return Action(
        what=described(event),
        kind=event.kind,
        asked_at=asked,
        done_at=time.time(),
        change=change,
        phase=event.phase if isinstance(event, PhaseBegins) else None,
        is_failure=isinstance(event, PartKill) or (isinstance(event, LinkChange) and not event.up),
        trouble=trouble,
    )


def _set_bandwidth(service: ServiceAccess, event: BandwidthChange) -> int | None:
    plain = json.loads(service.ask("GET", "/v1/network").body)["network"]
    network = from_plain(Network, plain)
    switches = tuple(
        _with_bandwidth(each, event.bandwidth_bits_per_second) if each.id == event.switch else each
        for each in network.switches
    )
    body = to_json(replace(network, switches=switches))
    return _changed(service, "PUT", "/v1/network", body)


def _with_bandwidth(switch: Switch, bits_per_second: float) -> Switch:
    """The guarantees of its classes shrink with it; the burst was at least a packet, and stays."""
    share = bits_per_second / switch.bandwidth_bits_per_second
    return replace(
        switch,
        bandwidth_bits_per_second=bits_per_second,
        guaranteed_bits_per_second=switch.guaranteed_bits_per_second * min(share, 1.0),
    )


def _changed(service: ServiceAccess, method: str, path: str, body: str) -> int | None:
    answer = json.loads(service.ask(method, f"{path}?wait_seconds=0", body).body)
    change = answer.get("change")
    return int(change) if change is not None else None
