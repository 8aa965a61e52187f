"""Programs of ``test_site_networks.py``: sites on switches, with a federation on them."""

import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from firedex.certificates.folder import CertificateFolder
from firedex.lab.healing.rounds import merge_round, running_sites
from firedex_emulation.site_networks.catalog import SITE_NETWORKS
from firedex_emulation.site_networks.switch_form import SiteSwitches
from firedex_emulation.testbed.sandbox import enter_sandbox, start_open_vswitch

LEASE_SECONDS = 1.0


def federation(sites: str) -> Any:
    """Run a federation on switches; cut the links between two parts and restore them."""
    network = SITE_NETWORKS[int(sites)]
    begin = time.monotonic()
    hosts = SiteSwitches(network)
    started = time.monotonic() - begin
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        certificates = CertificateFolder(folder / "certificates")
        now = datetime.now(UTC)
        certificates.create_authority("sites", now=now)
        certificates.issue(network.sites, now=now)
        with running_sites(
            folder / "sites",
            network,
            lease_seconds=LEASE_SECONDS,
            hosts=hosts,
            certificates=folder / "certificates",
        ) as running:
            merged = merge_round(running, 0, hosts=hosts)
    return {
        "start_seconds": started,
        "round_trips": hosts.measured_round_trips(),
        "requested": [2 * link.delay_seconds for link in network.links],
        "served_seconds": running.cold_start.served_seconds,
        "crossing_seconds": merged.crossing_seconds,
        "retained_seconds": merged.retained_seconds,
    }


if __name__ == "__main__":
    enter_sandbox()
    start_open_vswitch()
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(answer), flush=True)
