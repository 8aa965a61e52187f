"""``kill -9`` at random moments under load: no acknowledged change is lost or incomplete.

In every round four clients change their registrations as fast as possible, the phase changes
sometimes, and the service is killed. After the restart each client has its last acknowledged
registration or the one of its open request, and the switch rules match the active configuration.
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

from tests.support.fake_controller import FakeController, running_controller
from tests.support.free_ports import free_port
from tests.support.service_process import ServiceProcess, service_process
from tests.support.service_site import Client, publisher, subscriber, wait_until_active

pytestmark = pytest.mark.slow

CLIENTS = 4
TOPICS = [f"t/{number}" for number in range(6)]
PATIENCE_SECONDS = 180.0


@dataclass
class RandomClient:
    """A client that changes one subscriber at random, and remembers the responses."""

    name: str
    generator: random.Random
    acknowledged: Any = None
    requested: Any = None
    change: int = 0
    requests: int = 0
    problems: list[str] = field(default_factory=list)

    def random_registration(self) -> dict[str, Any]:
        chosen = self.generator.sample(TOPICS, self.generator.randint(1, len(TOPICS)))
        address = f"10.0.0.{ord(self.name[-1])}"
        return subscriber(
            self.name, {t: self.generator.uniform(0.1, 9) for t in chosen}, address=address
        )

    def run(self, client: Client, stop: threading.Event) -> None:
        while not stop.is_set():
            self.requested = self.random_registration()
            try:
                answer = client.ask("PUT", f"/v1/subscribers/{self.name}", self.requested)
            except OSError:
                return  # the service was killed during the request
            except Exception as error:  # an incomplete response
                if "RemoteDisconnected" in type(error).__name__ or "Incomplete" in repr(error):
                    return
                raise
            if answer.status != 202:
                self.problems.append(f"{answer.status} {answer.body!r}")
                return
            self.acknowledged, self.change = self.requested, answer.json["change"]
            self.requests += 1


def subscriptions_of(registration: dict[str, Any]) -> dict[str, float]:
    return {
        s["filter"]: s["utility"]["weight"] for s in registration["subscriber"]["subscriptions"]
    }


def check_round(client: Client, clients: list[RandomClient], controller: FakeController) -> None:
    audit = client.get("/v1/audit?limit=1000").json
    numbers = [entry["change"] for entry in audit]
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1)), (
        "change numbers have gaps"
    )
    for random_client in clients:
        assert random_client.problems == []
        assert random_client.change <= numbers[0], "an acknowledged change is lost"
        answer = client.get(f"/v1/subscribers/{random_client.name}")
        if random_client.acknowledged is None and answer.status == 404:
            continue
        stored = subscriptions_of(answer.json)
        allowed = [
            subscriptions_of(p) for p in (random_client.acknowledged, random_client.requested) if p
        ]
        assert stored in allowed, f"{random_client.name} has a registration that it never sent"
        random_client.acknowledged = next(
            p
            for p in (random_client.acknowledged, random_client.requested)
            if p and subscriptions_of(p) == stored
        )
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        status = client.get("/v1/status").json
        if (
            status["pending_changes"] == 0
            and status["trouble"] is None
            and (controller.version == status["active_version"])
        ):
            break
        assert time.monotonic() < until, f"never active: {status}"
        time.sleep(0.02)
    configuration = client.get("/v1/configuration").json
    assert rules_on_switch(controller) == rules_of(configuration)
    flows: dict[str, set[str]] = {}
    for flow in configuration["flows"]:
        flows.setdefault(flow["subscriber"], set()).update(flow["filters"])
    for random_client in clients:
        if random_client.acknowledged is not None:
            assert flows[random_client.name] == set(subscriptions_of(random_client.acknowledged))


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


def one_round(
    running: ServiceProcess, clients: list[RandomClient], generator: random.Random
) -> None:
    client = Client(running.url)
    stop = threading.Event()
    threads = [
        threading.Thread(target=random_client.run, args=(Client(running.url), stop))
        for random_client in clients
    ]
    for thread in threads:
        thread.start()
    time.sleep(generator.uniform(0.05, 0.8))
    with contextlib.suppress(OSError):
        client.ask(
            "PUT", "/v1/incident/phase", {"phase": generator.choice(["size-up", "overhaul"])}
        )
    children = running.children()
    running.kill()
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    until = time.monotonic() + PATIENCE_SECONDS
    while any(Path(f"/proc/{child}/stat").exists() for child in children):
        assert time.monotonic() < until, "the planner did not end with the service"
        time.sleep(0.01)


def kill_rounds(folder: Path, rounds: int, state: str | None = None) -> None:
    generator = random.Random(7)  # noqa: S311  # not used for secrets
    controller = FakeController()
    controller.delay_seconds = 0.01
    seeds = [random.Random(n) for n in range(CLIENTS)]  # noqa: S311  # not used for secrets
    clients = [RandomClient(f"crew{n}", seeds[n]) for n in range(CLIENTS)]
    with running_controller(controller) as url:
        arguments = ("--open", "--controller", url)
        for number in range(rounds + 1):
            with service_process(folder, free_port(), *arguments, state=state) as running:
                client = Client(running.url)
                if number == 0:
                    declared = publisher("p0", dict.fromkeys(TOPICS, 20.0))
                    assert client.register(declared, wait=0).status == 202
                    wait_until_active(client)
                    client.ask("PUT", "/v1/profiles/overhaul", {"rules": []})
                    client.ask("POST", "/v1/incident", {"title": "fire"})
                else:
                    check_round(client, clients, controller)
                if number < rounds:
                    one_round(running, clients, generator)
    assert sum(random_client.requests for random_client in clients) > 2 * rounds, (
        "there was not enough load"
    )


def test_acknowledged_changes_survive_four_kills(tmp_path: Path) -> None:
    kill_rounds(tmp_path, 4)


@pytest.mark.long
def test_acknowledged_changes_survive_fifty_kills(tmp_path: Path, state: str) -> None:
    kill_rounds(tmp_path, 50, state)


def test_killed_planner_is_restarted(tmp_path: Path) -> None:
    with service_process(tmp_path, free_port(), "--open") as running:
        client = Client(running.url)
        client.register(publisher("p0", {"t/0": 1.0}), wait=0)
        wait_until_active(client)
        for child in running.children():
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
        client.register(subscriber("crew", {"t/0": 1.0}), wait=0)
        wait_until_active(client)


def test_sending_to_a_busy_planner_does_not_block() -> None:
    """Sending never waits, even if the planner reads nothing and the pipe is full."""
    from multiprocessing import get_context

    from firedex.service.planner.loop import CHANGED, STATISTICS
    from firedex.service.planner.process import PlannerProcess, _PipeInbox

    reader, writer = get_context("spawn").Pipe(duplex=False)
    os.set_blocking(writer.fileno(), False)
    planner = PlannerProcess(None, lambda _: None)  # type: ignore[arg-type]
    planner._pipe = writer
    start = time.monotonic()
    for _ in range(200_000):
        planner.send(CHANGED)
    planner.send(STATISTICS)
    assert time.monotonic() - start < PATIENCE_SECONDS
    inbox = _PipeInbox(reader)
    assert inbox.wait(1.0) == [CHANGED]
    planner.send(STATISTICS)
    assert inbox.wait(1.0) == [STATISTICS]
    assert inbox.wait(0.0) == []
    writer.close()
    assert inbox.wait(1.0) == ["stop"]
    reader.close()
