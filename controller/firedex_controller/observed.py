"""What the reconciler knows, in the service's words."""

from firedex.wire import (
    HostPlace,
    NetworkTopology,
    ObservedLink,
    SwitchPort,
    SwitchStatus,
)
from firedex_controller.reconciler import Reconciler
from firedex_controller.settings import SwitchSettings
from firedex_controller.topology import PortRef

__all__ = ["observed_topology"]


def observed_topology(
    reconciler: Reconciler, switches: dict[str, SwitchSettings]
) -> NetworkTopology:
    """Switches, links and hosts as known now."""
    topology, ports = reconciler.topology, reconciler.ports

    def name(place: PortRef) -> str | None:
        port = ports.get(place.switch, {}).get(place.number)
        return port.name if port else None

    links = [(near, name(near), far, name(far)) for near, far in sorted(topology.links.items())]
    hosts = [(host, name(host.place)) for host in topology.hosts.values()]
    return NetworkTopology(
        switches=tuple(
            SwitchStatus(
                switch=switch,
                datapath_id=f"{settings.datapath_id:016x}",
                connected=switch in reconciler.sessions,
                settled=reconciler.settled(switch),
                ports=tuple(
                    SwitchPort(number=port.number, name=port.name, up=port.up)
                    for port in ports.get(switch, {}).values()
                ),
                trouble=reconciler.trouble.get(switch),
            )
            for switch, settings in switches.items()
        ),
        links=tuple(
            ObservedLink(from_=near.switch, from_port=here, to=far.switch, to_port=there)
            for near, here, far, there in links
            if here and there
        ),
        hosts=tuple(
            HostPlace(
                hardware_address=host.hardware_address,
                address=host.address,
                switch=host.place.switch,
                port=port,
            )
            for host, port in hosts
            if port
        ),
    )
