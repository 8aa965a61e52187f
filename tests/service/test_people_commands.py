"""The commands for people, against a running service."""

import json
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from fake_controller import FakeController
from free_ports import free_port
from service_process import PATIENCE_SECONDS, service_process
from service_site import Client, publisher, serving, subscriber, wait_until

from firedex.service import configurations_command
from firedex.service.command import serve
from firedex.service.configurations_command import configurations
from firedex.service.people_commands import incident, status, subscriptions, what_if
from firedex.service.running import RunningService
from firedex.service.service_caller import ServiceCaller
from firedex.service.tokens_command import tokens
from firedex.wire import Configuration, from_json

SMOKE = publisher("p0", {"smoke/1": 10.0, "camera/1": 100.0})
CREW = subscriber("crew", {"smoke/#": 10.0, "camera/#": 1.0})


def run(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.fixture
def at(running: RunningService, client: Client) -> tuple[str, str]:
    client.register(SMOKE)
    client.register(CREW)
    return ("--service", running.url)


def test_status_says_what_is_in_force(at: tuple[str, str]) -> None:
    said = run(status, *at).output
    assert "served: 1 publishers, 1 subscribers with 2 subscriptions" in said
    assert "in force: configuration 2" in said
    assert "pending: 0 of 2 changes" in said
    assert json.loads(run(status, *at, "--json").output)["subscriptions"] == 2


def test_status_in_trouble_says_so_and_ends_with_1(
    at: tuple[str, str], client: Client, controller: FakeController
) -> None:
    controller.mood = "refuses"
    client.register(subscriber("other", {}, address="10.0.0.2"), wait=0)
    wait_until(lambda: client.get("/v1/status").json["trouble"] is not None, "trouble")
    result = run(status, *at)
    assert result.exit_code == 1
    assert "TROUBLE" in result.output
    assert "refused" in result.output


def test_configurations_are_listed_and_each_is_kept_once(
    at: tuple[str, str], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configurations_command, "PAGE", 2)
    client.register(subscriber("other", {"smoke/#": 1.0}, address="10.0.0.2"))
    listed = json.loads(run(configurations, *at, "--json").output)
    assert [record["version"] for record in listed] == [3, 2, 1]
    assert len(json.loads(run(configurations, *at, "--last", "1", "--json").output)) == 1
    assert "other" in run(configurations, *at).output
    folder = tmp_path / "kept"
    assert "3 of 3" in run(configurations, *at, "--save", str(folder)).output
    (file,) = folder.glob("configuration-3-*.json")
    assert from_json(Configuration, file.read_text()).version == 3
    assert "0 of 3" in run(configurations, *at, "--save", str(folder)).output


def test_subscriptions_are_a_table_of_all_or_of_one(at: tuple[str, str]) -> None:
    said = run(subscriptions, *at).output
    assert "crew smoke/#" in said
    assert "crew camera/#" in said
    rows = json.loads(run(subscriptions, *at, "--subscriber", "crew", "--json").output)
    assert {row["filter"] for row in rows} == {"smoke/#", "camera/#"}
    nobody = run(subscriptions, *at, "--subscriber", "nobody")
    assert nobody.exit_code == 1
    assert "404" in nobody.output


def test_what_if_shows_what_would_differ(at: tuple[str, str], tmp_path: Path) -> None:
    change = tmp_path / "change.yaml"
    change.write_text(json.dumps({"subscribers": [subscriber("new", {"smoke/1": 5.0})]}))
    said = run(what_if, str(change), "--without", "crew", *at)
    assert said.exit_code == 0, said.output
    assert "new smoke/1" in said.output
    assert "crew smoke/#" in said.output
    assert "without it: " in said.output
    assert "moved" not in said.output
    plain = json.loads(run(what_if, "--phase", "overhaul", "--json", *at).output)
    assert plain["difference"]["subscriptions"] == []


def test_an_incident_is_opened_changed_and_closed(at: tuple[str, str]) -> None:
    assert "in force with configuration" in run(incident, "open", "Tower", *at).output
    assert "in overhaul; in force" in run(incident, "phase", "overhaul", *at).output
    assert "Tower: in overhaul" in run(incident, "show", *at).output
    assert "closed" in run(incident, "close", *at).output
    again = run(incident, "close", *at)
    assert (again.exit_code, "no incident is open" in again.output) == (1, True)


def test_a_service_that_is_away_is_named() -> None:
    result = run(status, "--service", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "http://127.0.0.1:1 does not answer" in result.output
    assert run(status, "--service", "ftp://x").exit_code == 2


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://host:port", "http://host:99999", "http://a b", "http://", "x"]
)
@pytest.mark.parametrize("command", [status, subscriptions, what_if, incident])
def test_what_is_no_url_is_refused_by_every_command(command: click.Command, url: str) -> None:
    arguments = ("show",) if command is incident else ()
    result = run(command, *arguments, "--service", url)
    assert result.exit_code == 2
    assert "is not a URL of the form http or https://HOST:PORT" in result.output


def test_what_is_no_service_is_named() -> None:
    """It answers, but not in HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def babble() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"what?\r\n\r\n")

        thread = threading.Thread(target=babble)
        thread.start()
        result = run(status, "--service", f"http://127.0.0.1:{port}")
        thread.join(20)
    assert (result.exit_code, "does not answer" in result.output) == (1, True)


@pytest.mark.parametrize("command", [status, subscriptions])
@pytest.mark.parametrize("said", [b"[1]", b"{}", b"7"])
def test_an_answer_that_is_not_the_service_s_is_named(
    command: click.Command, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServiceCaller, "_ask", lambda *_: said)
    result = run(command)
    assert (result.exit_code, "answers unlike the service" in result.output) == (1, True)


def test_a_subscriber_of_any_name_is_asked_for(at: tuple[str, str]) -> None:
    result = run(subscriptions, *at, "--subscriber", "a b/ü")
    assert (result.exit_code, "Error: 40" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1, 2]", "must have names and values"),
        (b"2026-01-01", "must have names and values"),
        (b"just words", "must have names and values"),
        (b"\xff\xfe\x00", "utf-8"),
        (b"{a: [}", "expected"),
        (b"? [a, b]\n: c", "CHANGE"),
        (b"without_subscribers: 3", "must be a list"),
        (b"&a [*a]", "CHANGE"),
    ],
)
def test_a_file_that_is_no_change_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    change = tmp_path / "change.yaml"
    change.write_bytes(content)
    result = run(what_if, str(change), "--without", "crew", "--service", "http://127.0.0.1:1")
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_a_date_in_a_change_is_the_service_s_to_judge(at: tuple[str, str], tmp_path: Path) -> None:
    change = tmp_path / "change.yaml"
    change.write_text("phase: 2026-01-01")
    assert run(what_if, str(change), *at).exit_code == 0
    change.write_text("since: 2026-01-01")
    result = run(what_if, str(change), *at)
    assert (result.exit_code, "since" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("", "--role", "command"), "the name of a token"),
        ((" ", "--role", "command"), "the name of a token"),
        (("a\nb", "--role", "command"), "the name of a token"),
        (("x" * 129, "--role", "command"), "the name of a token"),
        (("x", "--role", "subscriber", "--for", ""), "the subscriber ''"),
        (("x", "--role", "publisher", "--for", "a b"), "the publisher 'a b'"),
        (("x", "--role", "subscriber", "--for", "a", "--crew-role", "-"), "the crew role '-'"),
        (("x", "--role", "operator", "--for", "a"), "is for no party"),
    ],
)
def test_tokens_that_nobody_could_use_are_not_made(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    state = ("--state", str(tmp_path / "s.sqlite"))
    result = run(tokens, "create", *arguments, *state)
    assert (result.exit_code, said in result.output) == (1, True), result.output
    assert json.loads(run(tokens, "list", "--json", *state).output) == []


@pytest.mark.parametrize("arguments", [("list",), ("revoke", "chief")])
def test_looking_at_tokens_makes_no_state(
    tmp_path: Path, new_postgres_state: Callable[[], str], arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "none.sqlite"
    for state in (str(file), new_postgres_state()):
        result = run(tokens, *arguments, "--state", state)
        assert (result.exit_code, "there is no state at" in result.output) == (2, True)
    assert not file.exists()


def test_tokens_are_in_the_audit_log_and_no_plan_follows(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        version = client.register(CREW).json["version"]
        at = ("--state", state)
        assert run(tokens, "create", "net", "--role", "operator", *at).exit_code == 0
        assert run(tokens, "revoke", "net", *at).exit_code == 0
        revoked, created, _ = client.get("/v1/audit").json
        assert (created["action"], created["subject"]) == ("create-token", "token net")
        assert created["detail"]["role"] == "operator"
        assert (revoked["action"], revoked["change"]) == ("revoke-token", 3)
        assert revoked["actor"].endswith(" at the command line")
        assert client.get("/v1/status").json["pending_changes"] == 0
        running.service.counted()  # have the planner look
        made = client.register(SMOKE).json
        assert made["version"] == version + 1
        assert made["reason"] == "register publisher p0"


def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "s.sqlite"))
    token = run(tokens, "create", "chief", "--role", "command", *state).output.strip()
    with serving(tmp_path / "s.sqlite", open_to_all=False) as running:
        assert run(status, "--service", running.url, "--token", token).exit_code == 0
        assert run(status, "--service", running.url).exit_code == 1
        assert "chief: command" in run(tokens, "list", *state).output
        assert run(tokens, "revoke", "chief", *state).exit_code == 0
        assert run(status, "--service", running.url, "--token", token).exit_code == 1
    assert run(tokens, "revoke", "chief", *state).exit_code == 1
    assert run(tokens, "create", "x", "--role", "subscriber", *state).exit_code == 1
    assert token not in run(tokens, "list", "--json", *state).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--open", "--listen", "0.0.0.0:8088"), "is not loopback"),
        (("--key", __file__), "go together"),
        (("--gateway", "localhost:1884"), "IPv4"),
        (("--state", "/nowhere/at/all.sqlite", "--open"), "cannot use the state"),
        (("--state", "postgresql://u@h:notaport/x", "--open"), "cannot use the state"),
        (("--state", "mysql://root@localhost/firedex", "--open"), "mysql:// is no state"),
    ],
)
def test_serve_refuses_what_would_go_wrong(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "{name: x, topics: [], network: {switches: [{id: core, bandwidth_bits_per_second: 1000}],"
        " broker: {id: edge}}}"
    )
    if "--listen" not in arguments:
        arguments = (*arguments, "--listen", "127.0.0.1:1")
        if "--state" in arguments:
            arguments = (*arguments[:-1], "127.0.0.1:48881")
    result = run(serve, str(site), *arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_serve_says_where_it_is_and_ends_quietly_on_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    with service_process(tmp_path, port, "--open") as running:
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE_SECONDS) == 0
    said = (tmp_path / "log").read_text()
    assert f"served at http://127.0.0.1:{port} " in said
    assert "Aborted" not in said
    assert "Traceback" not in said
