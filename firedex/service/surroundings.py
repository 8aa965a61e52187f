"""What the controller sees, taken over into the state: where subscribers are, what switches can.

Each difference that matters to a plan is a change like any other, made by ``controller``.
"""

import json
from collections.abc import Mapping
from ipaddress import IPv4Address

from sqlalchemy import Connection, delete, insert

from firedex.service import tables
from firedex.service.change_ledger import ChangeLedger, Entry, Origin
from firedex.service.controller_client import ControllerClient
from firedex.service.database import Database
from firedex.service.settings_store import write_setting
from firedex.service.site_state import SiteState
from firedex.service.state_reader import StateReader, setting
from firedex.wire import NetworkTopology, Scenario, SwitchCapabilities, to_plain

__all__ = ["moved_hosts", "take_over"]

CONTROLLER = Origin(actor="controller")


def moved_hosts(
    site: Scenario, state: SiteState, topology: NetworkTopology
) -> dict[IPv4Address, str]:
    """Registered subscribers' addresses that are seen behind another switch than planned with."""
    network = state.network or site.network
    places = {switch.id for switch in network.switches}
    seen = {host.address: host.switch for host in topology.hosts if host.switch in places}
    moved = {}
    for registration in state.subscribers.values():
        now = seen.get(registration.address)
        planned = state.hosts.get(registration.address, registration.subscriber.switch)
        if now is not None and now != planned:
            moved[registration.address] = now
    return moved


def take_over(
    controller: ControllerClient,
    database: Database,
    ledger: ChangeLedger,
    reader: StateReader,
    site: Scenario,
) -> bool:
    """Ask, and keep what differs; True if anything did."""
    topology, capabilities = controller.topology(), controller.capabilities()
    moved = moved_hosts(site, reader.read(), topology)
    if moved:
        ledger.make(CONTROLLER, lambda connection, _: _keep_hosts(connection, moved))
    with database.reading() as connection:
        known = setting(connection, "capabilities", tuple[SwitchCapabilities, ...]) or ()
    # Of a switch that is away nothing is said; what it could do, it will be able to do again.
    present = {each.switch: each for each in (*known, *capabilities)}
    differs = present != {each.switch: each for each in known}
    if differs:
        plain = json.dumps([to_plain(each) for each in present.values()])
        ledger.make(
            CONTROLLER,
            lambda connection, number: _keep_capabilities(connection, number, plain),
        )
    return bool(moved) or differs


def _keep_hosts(connection: Connection, moved: Mapping[IPv4Address, str]) -> Entry:
    for address, switch in moved.items():
        where = tables.host.c.address == str(address)
        connection.execute(delete(tables.host).where(where))
        connection.execute(insert(tables.host).values(address=str(address), switch=switch))
    shown = {str(address): switch for address, switch in list(moved.items())[:20]}
    return Entry(action="move", subject=f"{len(moved)} hosts", detail=shown)


def _keep_capabilities(connection: Connection, number: int, plain: str) -> Entry:
    write_setting(connection, "capabilities", plain, number)
    return Entry(action="capabilities", subject="switches")
