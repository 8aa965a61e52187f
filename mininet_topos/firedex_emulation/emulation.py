"""Outside the sandbox: run a scenario in one way after the other, and measure each."""

from collections.abc import Callable

from firedex.wire import to_json
from firedex_emulation.emulated_network import plan_network
from firedex_emulation.emulation_orders import EmulationOrders
from firedex_emulation.measurement import WayMeasurement, measure_way
from firedex_emulation.observation import Observation
from firedex_emulation.one_run import RunOrders
from firedex_emulation.run_journal import RunJournal
from firedex_emulation.sandbox import check_requirements, run_in_sandbox
from firedex_emulation.ways import TITLES

__all__ = ["emulate_ways"]

SET_UP_SECONDS = 180.0


def emulate_ways(
    orders: EmulationOrders,
    *,
    report: Callable[[str], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[WayMeasurement]:
    """Run each way; observations and delivery records stay in the folder, if one was asked for.

    ``report`` hears what is going on, ``tell`` what should be remembered.
    """
    # To refuse here, where it can be shown, what cannot run.
    plan = plan_network(orders.scenario, orders.topology)
    check_requirements()
    measured = []
    with RunJournal(tell) as journal:
        folder = orders.folder.resolve() if orders.folder else journal.make_folder()
        for number, way in enumerate(orders.ways, 1):
            scenario = orders.as_run(way)
            title = f"{number}/{len(orders.ways)} {TITLES[way]}, {plan.topology}"
            report(f"{title}: building the network")
            (folder / "scenario.json").write_text(to_json(scenario))
            run = RunOrders(
                way=way,
                framework=orders.framework,
                seconds=orders.seconds,
                seed=orders.seed,
                folder=str(folder),
                topology=plan.topology,
            )
            run_in_sandbox(
                "firedex_emulation.one_run",
                [run.to_argument()],
                timeout_seconds=orders.seconds + SET_UP_SECONDS,
                started=journal.note_process,
                heard=_titled(title, report),
            )
            report(f"{title}: measuring")
            observed = folder / f"{way}-observation.json"
            observation = Observation.from_json(observed.read_text())
            observation = observation.with_notes(orders.not_reached())
            measured.append(measure_way(scenario, way, observation, folder))
    return measured


def _titled(title: str, report: Callable[[str], None]) -> Callable[[str], None]:
    return lambda said: report(f"{title}: {said}")
