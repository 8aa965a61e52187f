"""Copy what the controller sees into the state: switches of hosts, and switch capabilities.

Each difference that matters to a plan is recorded as a change made by ``controller``.
"""

import json
from collections.abc import Mapping
from ipaddress import IPv4Address

from sqlalchemy import Connection, delete, insert

from firedex.service.planner.controller_client import ControllerClient
from firedex.service.state import tables
from firedex.service.state.change_ledger import ChangeLedger, Entry, Origin
from firedex.service.state.database import Database
from firedex.service.state.settings_store import write_setting
from firedex.service.state.site_state import SiteState
from firedex.service.state.state_reader import StateReader, setting
from firedex.wire import NetworkTopology, Scenario, SwitchCapabilities, to_plain

__all__ = ["moved_hosts", "sync_from_controller"]

CONTROLLER = Origin(actor="controller")


def moved_hosts(
    site: Scenario, state: SiteState, topology: NetworkTopology
) -> dict[IPv4Address, str]:
    """Return subscribers' addresses that are attached to another switch than planned."""
    network = state.network or site.network
    known_switches = {switch.id for switch in network.switches}
    seen = {host.address: host.switch for host in topology.hosts if host.switch in known_switches}
    moved = {}
    for registration in state.subscribers.values():
        now = seen.get(registration.address)
        planned = state.hosts.get(registration.address, registration.subscriber.switch)
        if now is not None and now != planned:
            moved[registration.address] = now
    return moved


def sync_from_controller(
    controller: ControllerClient,
    database: Database,
    ledger: ChangeLedger,
    reader: StateReader,
    site: Scenario,
) -> bool:
    """Store what differs from the state; return True if anything did."""
    topology, capabilities = controller.topology(), controller.capabilities()
    moved = moved_hosts(site, reader.read(), topology)
    if moved:
        ledger.make(CONTROLLER, lambda connection, _: _store_hosts(connection, moved))
    with database.reading() as connection:
        known = setting(connection, "capabilities", tuple[SwitchCapabilities, ...]) or ()
    # A disconnected switch is not listed; it will have the same capabilities when it is back.
    present = {each.switch: each for each in (*known, *capabilities)}
    differs = present != {each.switch: each for each in known}
    if differs:
        plain = json.dumps([to_plain(each) for each in present.values()])
        ledger.make(
            CONTROLLER,
            lambda connection, number: _store_capabilities(connection, number, plain),
        )
    return bool(moved) or differs


def _store_hosts(connection: Connection, moved: Mapping[IPv4Address, str]) -> Entry:
    for address, switch in moved.items():
        where = tables.host.c.address == str(address)
        connection.execute(delete(tables.host).where(where))
        connection.execute(insert(tables.host).values(address=str(address), switch=switch))
    shown = {str(address): switch for address, switch in list(moved.items())[:20]}
    return Entry(action="move", subject=f"{len(moved)} hosts", detail=shown)


def _store_capabilities(connection: Connection, number: int, plain: str) -> Entry:
    write_setting(connection, "capabilities", plain, number)
    return Entry(action="capabilities", subject="switches")
