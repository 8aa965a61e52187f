"""``kill -9`` at random moments under load: what was acknowledged is there, nothing is half there.

In every round four clients change what they have as fast as they can, a phase changes now and then,
and the service is killed. After the restart each client has either what was acknowledged last or
what it was just asking for, whole; and the switch rules are those of the configuration in force.
"""

import contextlib
import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_controller import FakeController, running_controller
from free_ports import free_port
from service_process import ServiceProcess, service_process
from service_site import Client, publisher, subscriber, wait_until_in_force

CLIENTS = 4
TOPICS = [f"t/{number}" for number in range(6)]
PATIENCE_SECONDS = 180.0


@dataclass
class Party:
    """A client that changes one subscriber, and remembers what it was told."""

    name: str
    coins: random.Random
    acknowledged: Any = None
    asked: Any = None
    change: int = 0
    requests: int = 0
    problems: list[str] = field(default_factory=list)

    def wish(self) -> dict[str, Any]:
        chosen = self.coins.sample(TOPICS, self.coins.randint(1, len(TOPICS)))
        address = f"10.0.0.{ord(self.name[-1])}"
        return subscriber(
            self.name, {t: self.coins.uniform(0.1, 9) for t in chosen}, address=address
        )

    def run(self, client: Client, stop: threading.Event) -> None:
        while not stop.is_set():
            self.asked = self.wish()
            try:
                answer = client.ask("PUT", f"/v1/subscribers/{self.name}", self.asked)
            except OSError:
                return  # it was killed while we asked
            except Exception as error:  # an answer cut off half way
                if "RemoteDisconnected" in type(error).__name__ or "Incomplete" in repr(error):
                    return
                raise
            if answer.status != 202:
                self.problems.append(f"{answer.status} {answer.body!r}")
                return
            self.acknowledged, self.change = self.asked, answer.json["change"]
            self.requests += 1


def subscriptions_of(registration: dict[str, Any]) -> dict[str, float]:
    return {
        s["filter"]: s["utility"]["weight"] for s in registration["subscriber"]["subscriptions"]
    }


def check_round(client: Client, parties: list[Party], controller: FakeController) -> None:
    audit = client.get("/v1/audit?limit=1000").json
    numbers = [entry["change"] for entry in audit]
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1)), "gaps in the ledger"
    for party in parties:
        assert party.problems == []
        assert party.change <= numbers[0], "an acknowledged change is lost"
        answer = client.get(f"/v1/subscribers/{party.name}")
        if party.acknowledged is None and answer.status == 404:
            continue
        kept = subscriptions_of(answer.json)
        allowed = [subscriptions_of(p) for p in (party.acknowledged, party.asked) if p]
        assert kept in allowed, f"{party.name} has what it never asked for"
        party.acknowledged = next(
            p for p in (party.acknowledged, party.asked) if p and subscriptions_of(p) == kept
        )
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        status = client.get("/v1/status").json
        if (
            status["pending_changes"] == 0
            and status["trouble"] is None
            and (controller.version == status["in_force_version"])
        ):
            break
        assert time.monotonic() < until, f"never in force: {status}"
        time.sleep(0.02)
    configuration = client.get("/v1/configuration").json
    assert rules_on_switch(controller) == rules_of(configuration)
    flows: dict[str, set[str]] = {}
    for flow in configuration["flows"]:
        flows.setdefault(flow["subscriber"], set()).update(flow["filters"])
    for party in parties:
        if party.acknowledged is not None:
            assert flows[party.name] == set(subscriptions_of(party.acknowledged))


def rules_of(configuration: dict[str, Any]) -> set[str]:
    return {
        json.dumps([f["subscriber"], f["flow"], f["priority"], f["endpoints"]], sort_keys=True)
        for f in configuration["flows"]
    }


def rules_on_switch(controller: FakeController) -> set[str]:
    plain = controller.plain
    assert plain is not None
    return {
        json.dumps([r["subscriber"], r["flow"], r["priority"], r["endpoints"]], sort_keys=True)
        for switch in plain["switches"]
        for r in switch["flows"]
    }


def one_round(running: ServiceProcess, parties: list[Party], coins: random.Random) -> None:
    client = Client(running.url)
    stop = threading.Event()
    threads = [
        threading.Thread(target=party.run, args=(Client(running.url), stop)) for party in parties
    ]
    for thread in threads:
        thread.start()
    time.sleep(coins.uniform(0.05, 0.8))
    with contextlib.suppress(OSError):
        client.ask("PUT", "/v1/incident/phase", {"phase": coins.choice(["size-up", "overhaul"])})
    children = running.children()
    running.kill()
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    until = time.monotonic() + PATIENCE_SECONDS
    while any(Path(f"/proc/{child}/stat").exists() for child in children):
        assert time.monotonic() < until, "the planner outlives the service"
        time.sleep(0.01)


def kill_rounds(folder: Path, rounds: int, state: str | None = None) -> None:
    coins = random.Random(7)  # noqa: S311  # chance, no secret
    controller = FakeController()
    controller.delay_seconds = 0.01
    seeds = [random.Random(n) for n in range(CLIENTS)]  # noqa: S311  # likewise
    parties = [Party(f"crew{n}", seeds[n]) for n in range(CLIENTS)]
    with running_controller(controller) as url:
        arguments = ("--open", "--controller", url)
        for number in range(rounds + 1):
            with service_process(folder, free_port(), *arguments, state=state) as running:
                client = Client(running.url)
                if number == 0:
                    declared = publisher("p0", dict.fromkeys(TOPICS, 20.0))
                    assert client.register(declared, wait=0).status == 202
                    wait_until_in_force(client)
                    client.ask("PUT", "/v1/profiles/overhaul", {"rules": []})
                    client.ask("POST", "/v1/incident", {"title": "fire"})
                else:
                    check_round(client, parties, controller)
                if number < rounds:
                    one_round(running, parties, coins)
    assert sum(party.requests for party in parties) > 2 * rounds, "there was no load to speak of"


def test_ten_rounds(tmp_path: Path) -> None:
    kill_rounds(tmp_path, 10)


@pytest.mark.long
def test_fifty_rounds(tmp_path: Path, state: str) -> None:
    kill_rounds(tmp_path, 50, state)


def test_a_planner_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with service_process(tmp_path, free_port(), "--open") as running:
        client = Client(running.url)
        client.register(publisher("p0", {"t/0": 1.0}), wait=0)
        wait_until_in_force(client)
        for child in running.children():
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
        client.register(subscriber("crew", {"t/0": 1.0}), wait=0)
        wait_until_in_force(client)


def test_a_planner_that_is_busy_holds_up_nobody() -> None:
    """Told far more often than a pipe can hold, and it reads nothing: telling does not wait."""
    from multiprocessing import get_context

    from firedex.service.planner_loop import CHANGED, STATISTICS
    from firedex.service.planner_process import PlannerProcess, _PipeInbox

    told, telling = get_context("spawn").Pipe(duplex=False)
    os.set_blocking(telling.fileno(), False)
    planner = PlannerProcess(None, lambda _: None)  # type: ignore[arg-type]
    planner._pipe = telling
    began = time.monotonic()
    for _ in range(200_000):
        planner.tell(CHANGED)
    planner.tell(STATISTICS)
    assert time.monotonic() - began < PATIENCE_SECONDS
    inbox = _PipeInbox(told)
    assert inbox.wait(1.0) == [CHANGED]
    planner.tell(STATISTICS)
    assert inbox.wait(1.0) == [STATISTICS]
    assert inbox.wait(0.0) == []
    telling.close()
    assert inbox.wait(1.0) == ["stop"]
    told.close()
