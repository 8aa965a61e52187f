"""The commands for operators, with a running service."""

import json
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from firedex.service.commands import configurations as configurations_command
from firedex.service.commands.configurations import configurations
from firedex.service.commands.operator import incident, status, subscriptions, what_if
from firedex.service.commands.serve import serve
from firedex.service.commands.tokens import tokens
from firedex.service.running import RunningService
from firedex.transport.http import HttpClient, Response
from firedex.wire import Configuration, from_json
from tests.support.fake_controller import FakeController
from tests.support.free_ports import free_port
from tests.support.service_process import TIMEOUT_SECONDS, service_process
from tests.support.service_site import Client, publisher, serving, subscriber, wait_until

pytestmark = pytest.mark.slow

SMOKE = publisher("p0", {"smoke/1": 10.0, "camera/1": 100.0})
CREW = subscriber("crew", {"smoke/#": 10.0, "camera/#": 1.0})


def run(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.fixture
def service_options(running: RunningService, client: Client) -> tuple[str, str]:
    client.register(SMOKE)
    client.register(CREW)
    return ("--service", running.url)


def test_status_shows_the_active_configuration(service_options: tuple[str, str]) -> None:
    message = run(status, *service_options).output
    assert "served: 1 publishers, 1 subscribers with 2 subscriptions" in message
    assert "active: configuration 2" in message
    assert "pending: 0 of 2 changes" in message
    assert json.loads(run(status, *service_options, "--json").output)["subscriptions"] == 2


def test_status_reports_errors_and_exits_with_1(
    service_options: tuple[str, str], client: Client, controller: FakeController
) -> None:
    controller.behaviour = "rejects"
    client.register(subscriber("other", {}, address="10.0.0.2"), wait=0)
    wait_until(lambda: client.get("/v1/status").json["trouble"] is not None, "trouble")
    result = run(status, *service_options)
    assert result.exit_code == 1
    assert "ERROR since" in result.output
    assert "refused" in result.output


def test_configurations_are_listed_and_saved_once(
    service_options: tuple[str, str],
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(configurations_command, "PAGE", 2)
    client.register(subscriber("other", {"smoke/#": 1.0}, address="10.0.0.2"))
    listed = json.loads(run(configurations, *service_options, "--json").output)
    assert [record["version"] for record in listed] == [3, 2, 1]
    assert (
        len(json.loads(run(configurations, *service_options, "--last", "1", "--json").output)) == 1
    )
    assert "other" in run(configurations, *service_options).output
    folder = tmp_path / "kept"
    assert "saved 3 of 3" in run(configurations, *service_options, "--save", str(folder)).output
    (file,) = folder.glob("configuration-3-*.json")
    assert from_json(Configuration, file.read_text()).version == 3
    assert "saved 0 of 3" in run(configurations, *service_options, "--save", str(folder)).output


def test_subscriptions_of_all_or_one_subscriber_are_shown(service_options: tuple[str, str]) -> None:
    message = run(subscriptions, *service_options).output
    assert "crew smoke/#" in message
    assert "crew camera/#" in message
    rows = json.loads(run(subscriptions, *service_options, "--subscriber", "crew", "--json").output)
    assert {row["filter"] for row in rows} == {"smoke/#", "camera/#"}
    unknown = run(subscriptions, *service_options, "--subscriber", "nobody")
    assert unknown.exit_code == 1
    assert "404" in unknown.output


def test_what_if_shows_the_differences(service_options: tuple[str, str], tmp_path: Path) -> None:
    change = tmp_path / "change.yaml"
    change.write_text(json.dumps({"subscribers": [subscriber("new", {"smoke/1": 5.0})]}))
    message = run(what_if, str(change), "--without", "crew", *service_options)
    assert message.exit_code == 0, message.output
    assert "new smoke/1" in message.output
    assert "crew smoke/#" in message.output
    assert "without the change: " in message.output
    assert "present rates" not in message.output
    plain = json.loads(run(what_if, "--phase", "overhaul", "--json", *service_options).output)
    assert plain["difference"]["subscriptions"] == []


def test_incident_is_opened_changed_and_closed(service_options: tuple[str, str]) -> None:
    assert "active with configuration" in run(incident, "open", "Tower", *service_options).output
    assert (
        "in the phase overhaul; active"
        in run(incident, "phase", "overhaul", *service_options).output
    )
    assert "Tower: in the phase overhaul" in run(incident, "show", *service_options).output
    assert "closed" in run(incident, "close", *service_options).output
    again = run(incident, "close", *service_options)
    assert (again.exit_code, "no incident is open" in again.output) == (1, True)


def test_unreachable_service_is_reported_with_its_url() -> None:
    result = run(status, "--service", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "http://127.0.0.1:1 does not answer" in result.output
    assert run(status, "--service", "ftp://x").exit_code == 2


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://host:port", "http://host:99999", "http://a b", "http://", "x"]
)
@pytest.mark.parametrize("command", [status, subscriptions, what_if, incident])
def test_invalid_url_is_rejected_by_every_command(command: click.Command, url: str) -> None:
    arguments = ("show",) if command is incident else ()
    result = run(command, *arguments, "--service", url)
    assert result.exit_code == 2
    assert "is not a URL of the form http or https://HOST:PORT" in result.output


def test_server_without_http_is_reported() -> None:
    """The server answers, but not with HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def answer_without_http() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"what?\r\n\r\n")

        thread = threading.Thread(target=answer_without_http)
        thread.start()
        result = run(status, "--service", f"http://127.0.0.1:{port}")
        thread.join(20)
    assert (result.exit_code, "does not answer" in result.output) == (1, True)


@pytest.mark.parametrize("command", [status, subscriptions])
@pytest.mark.parametrize("message", [b"[1]", b"{}", b"7"])
def test_response_of_another_service_is_reported(
    command: click.Command, message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpClient, "request", lambda *_: Response(status=200, body=message))
    result = run(command)
    assert (result.exit_code, "is not a FireDeX service" in result.output) == (1, True)


def test_invalid_subscriber_id_is_reported(service_options: tuple[str, str]) -> None:
    result = run(subscriptions, *service_options, "--subscriber", "a b/ü")
    assert (result.exit_code, "Error: 40" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1, 2]", "must be a mapping"),
        (b"2026-01-01", "must be a mapping"),
        (b"just words", "must be a mapping"),
        (b"\xff\xfe\x00", "utf-8"),
        (b"{a: [}", "expected"),
        (b"? [a, b]\n: c", "CHANGE"),
        (b"without_subscribers: 3", "must be a list"),
        (b"&a [*a]", "CHANGE"),
    ],
)
def test_invalid_change_file_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    change = tmp_path / "change.yaml"
    change.write_bytes(content)
    result = run(what_if, str(change), "--without", "crew", "--service", "http://127.0.0.1:1")
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_dates_in_a_change_file_are_sent_as_text(
    service_options: tuple[str, str], tmp_path: Path
) -> None:
    change = tmp_path / "change.yaml"
    change.write_text("phase: 2026-01-01")
    assert run(what_if, str(change), *service_options).exit_code == 0
    change.write_text("since: 2026-01-01")
    result = run(what_if, str(change), *service_options)
    assert (result.exit_code, "since" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "--role", "command"), "the name of a token"),
        ((" ", "--role", "command"), "the name of a token"),
        (("a\nb", "--role", "command"), "the name of a token"),
        (("x" * 129, "--role", "command"), "the name of a token"),
        (("x", "--role", "subscriber", "--for", ""), "the subscriber ''"),
        (("x", "--role", "publisher", "--for", "a b"), "the publisher 'a b'"),
        (("x", "--role", "subscriber", "--for", "a", "--crew-role", "-"), "the crew role '-'"),
        (("x", "--role", "operator", "--for", "a"), "cannot be for a subscriber or publisher"),
    ],
)
def test_invalid_tokens_are_not_created(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    state = ("--state", str(tmp_path / "s.sqlite"))
    result = run(tokens, "create", *arguments, *state)
    assert (result.exit_code, message in result.output) == (1, True), result.output
    assert json.loads(run(tokens, "list", "--json", *state).output) == []


@pytest.mark.parametrize("arguments", [("list",), ("revoke", "chief")])
def test_listing_or_revoking_tokens_creates_no_database(
    tmp_path: Path, new_postgres_state: Callable[[], str], arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "none.sqlite"
    for state in (str(file), new_postgres_state()):
        result = run(tokens, *arguments, "--state", state)
        assert (result.exit_code, "there is no state at" in result.output) == (2, True)
    assert not file.exists()


def test_token_changes_are_audited_and_cause_no_plan(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        version = client.register(CREW).json["version"]
        service_options = ("--state", state)
        assert run(tokens, "create", "net", "--role", "operator", *service_options).exit_code == 0
        assert run(tokens, "revoke", "net", *service_options).exit_code == 0
        revoked, created, _ = client.get("/v1/audit").json
        assert (created["action"], created["subject"]) == ("create-token", "token net")
        assert created["detail"]["role"] == "operator"
        assert (revoked["action"], revoked["change"]) == ("revoke-token", 3)
        assert revoked["actor"].endswith(" at the command line")
        assert client.get("/v1/status").json["pending_changes"] == 0
        running.service.statistics_stored()  # wake the planner
        configuration = client.register(SMOKE).json
        assert configuration["version"] == version + 1
        assert configuration["reason"] == "register publisher p0"


def test_tokens_are_created_listed_and_revoked(tmp_path: Path) -> None:
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
    ("arguments", "message"),
    [
        (("--open", "--listen", "0.0.0.0:8088"), "is not loopback"),
        (("--key", __file__), "must be given together"),
        (("--gateway", "localhost:1884"), "IPv4"),
        (("--state", "/nowhere/at/all.sqlite", "--open"), "cannot use the state"),
        (("--state", "postgresql://u@h:notaport/x", "--open"), "cannot use the state"),
        (("--state", "mysql://root@localhost/firedex", "--open"), "mysql:// is not supported"),
    ],
)
def test_serve_rejects_invalid_options(
    tmp_path: Path, arguments: tuple[str, ...], message: str
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
    assert message in result.output


def test_serve_prints_its_address_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    with service_process(tmp_path, port, "--open") as running:
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(TIMEOUT_SECONDS) == 0
    message = (tmp_path / "log").read_text()
    assert f"listens at http://127.0.0.1:{port};" in message
    assert "Aborted" not in message
    assert "Traceback" not in message
