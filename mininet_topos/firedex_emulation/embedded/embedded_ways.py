"""All ways of a scenario on loopback, one after the other, each measured."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from firedex_emulation.choreography import conduct
from firedex_emulation.embedded.loopback_stage import LoopbackStage, check_embedded
from firedex_emulation.emulation_orders import EmulationOrders
from firedex_emulation.measurement import WayMeasurement, measure_way
from firedex_emulation.stage import Performance
from firedex_emulation.ways import TITLES

__all__ = ["run_embedded"]


def run_embedded(
    orders: EmulationOrders, report: Callable[[str], None] = lambda _: None
) -> list[WayMeasurement]:
    """Run each way; observations and delivery records stay in the folder, if one was asked for."""
    check_embedded(orders.scenario)
    if orders.folder is not None:
        return _run_in(orders.folder.resolve(), orders, report)
    with tempfile.TemporaryDirectory(prefix="firedex-emulation-") as folder:
        return _run_in(Path(folder), orders, report)


def _run_in(
    folder: Path, orders: EmulationOrders, report: Callable[[str], None]
) -> list[WayMeasurement]:
    measured = []
    for number, way in enumerate(orders.ways, 1):
        scenario = orders.as_run(way)
        title = f"{number}/{len(orders.ways)} {TITLES[way]}, embedded"

        def say(said: str, title: str = title) -> None:
            report(f"{title}: {said}")

        say("starting the parts")
        performance = Performance(
            scenario=scenario, way=way, seconds=orders.seconds, seed=orders.seed, records=folder
        )
        with LoopbackStage(scenario, bounded=way != "none") as stage:
            observation = conduct(stage, performance, say).with_notes(orders.not_reached())
        (folder / f"{way}-observation.json").write_text(observation.to_json())
        say("measuring")
        measured.append(measure_way(scenario, way, observation, folder))
    return measured
