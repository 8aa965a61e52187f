"""Inside the sandbox: one way of running a scenario, from an empty machine to an observation."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from firedex.wire import Scenario, from_json
from firedex_emulation.choreography import conduct
from firedex_emulation.emulated_network import build_network
from firedex_emulation.errors import EmulationError
from firedex_emulation.sandbox import settle_in
from firedex_emulation.site_processes import CONTROLLER_PORT
from firedex_emulation.stage import Performance
from firedex_emulation.switch_host import start_open_vswitch
from firedex_emulation.switch_stage import SwitchStage

__all__ = ["RunOrders"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrders:
    """One way to run, as one argument; ``folder`` is outside the sandbox and outlives it."""

    way: str
    framework: str
    seconds: float
    seed: int
    folder: str
    topology: str

    def to_argument(self) -> str:
        """For a command line."""
        return json.dumps(asdict(self))


def main(orders: RunOrders) -> None:
    """Run ``scenario.json`` of the folder; leave the observation and the records there."""
    settle_in()
    folder = Path(orders.folder)
    scenario = from_json(Scenario, (folder / "scenario.json").read_text())
    start_open_vswitch()
    network = build_network(scenario, controller_port=CONTROLLER_PORT, topology=orders.topology)
    stage = SwitchStage(network, scenario, framework=orders.framework, bounded=orders.way != "none")
    performance = Performance(
        scenario=scenario,
        way=orders.way,
        seconds=orders.seconds,
        seed=orders.seed,
        records=folder,
    )
    observation = conduct(stage, performance, lambda said: print(said, flush=True))
    (folder / f"{orders.way}-observation.json").write_text(observation.to_json())


if __name__ == "__main__":
    try:
        main(RunOrders(**json.loads(sys.argv[1])))
    except EmulationError as error:
        sys.exit(f"firedex: {error}")
