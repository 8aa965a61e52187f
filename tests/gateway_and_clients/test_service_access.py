"""Asking the service, and the gateway's following it: nothing that is said ends either for good."""

import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_service import FakeService, running_service
from free_ports import free_port
from loopback_parts import wait_until

from firedex import service_access
from firedex.gateway import command
from firedex.gateway.flow_table import FlowTable
from firedex.gateway.service_following import ServiceFollower
from firedex.service_access import ServiceAccess, ServiceAway, ServiceSaidNo
from firedex.wire import Configuration, Heartbeat, LogUtility, Statistics, TopicCount
from firedex_clients import (
    ClientError,
    ServiceRefused,
    Subscriber,
    service_client,
    sub_command,
    subscriber,
)
from firedex_clients.own_registration import OwnRegistration
from firedex_clients.service_client import ServiceClient

NOWHERE = "http://127.0.0.1:1"


def report(*topics: str, flow: int = 0) -> Statistics:
    return Statistics(
        reporter="gateway",
        subscriber="crew",
        flow=flow,
        configuration_version=1,
        window_start=datetime.now(UTC),
        window_seconds=5.0,
        topics=tuple(TopicCount(topic=topic, offered_events=1) for topic in topics),
    )


def test_topics_in_any_script_are_reported() -> None:
    service = FakeService(1)
    with running_service(service) as url:
        ServiceAccess(url).post_statistics([report("消防/烟雾", "fumée/étage")])
    (found,) = service.statistics
    assert {each.topic for each in found.topics} == {"消防/烟雾", "fumée/étage"}


def test_many_reports_go_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_access, "MOST_REPORTS_AT_ONCE", 3)
    monkeypatch.setattr(service_access, "MOST_REPORTED_BYTES_AT_ONCE", 20_000)
    small = [report("t", flow=n) for n in range(7)]
    large = [report(*(f"{'x' * 90}/{n}" for n in range(100)), flow=n) for n in range(7, 10)]
    service = FakeService(1)
    with running_service(service) as url:
        ServiceAccess(url).post_statistics([*small, *large])
        ServiceAccess(url).post_statistics([])
    assert [each.flow for each in service.statistics] == list(range(10))
    assert len(service.requests) == 5, "three, three, one and a large one, two large ones alone"


def test_a_request_that_is_refused_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_access, "MOST_REPORTS_AT_ONCE", 1)
    access, asked = ServiceAccess(NOWHERE), list[str]()

    def ask(_method: str, _path: str, body: str) -> None:
        asked.append(body)
        if len(asked) == 1:
            raise ServiceSaidNo("that one not", 400)

    monkeypatch.setattr(access, "ask", ask)
    with pytest.raises(ServiceSaidNo, match="that one not"):
        access.post_statistics([report("t"), report("t")])
    assert len(asked) == 2


@pytest.mark.parametrize("token", ["abc\r", "a b", "schlüssel", "a\nX-Other: 1"])
def test_a_token_that_fits_no_header_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token") as refusal:
        ServiceAccess(NOWHERE, token)
    assert token not in str(refusal.value), "it is a secret"
    result = CliRunner().invoke(command.gateway, [f"--token={token}", f"--service={NOWHERE}"])
    assert result.exit_code == 2, repr(result.exception)
    assert "the token" in result.stderr


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of 127.0.0.1, with its key in one file."""
    key, file = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        + ["-nodes", "-keyout", str(key), "-out", str(file), "-days", "2"]
        + ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    file.write_text(file.read_text() + key.read_text())
    return file


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_service_with_tls_is_asked_followed_and_left(certificate: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    service, flows = FakeService(1), FlowTable()
    service.set_plan({})
    with running_service(service, tls=tls) as url:
        access = ServiceAccess(url, ca_file=certificate)
        access.post_statistics([report("t")])
        with following(access, flows):
            wait_until(lambda: flows.version == 1, "the plan to be followed")
            service.set_plan({})
            wait_until(lambda: flows.version == 2, "the next plan to be told of")
        assert ServiceClient(url, ca_file=certificate).configuration().version == 2
        with pytest.raises(ServiceAway, match="certificate"):
            ServiceAccess(url).configuration()
    assert len(service.statistics) == 1


def test_what_cannot_be_trusted_is_named(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.touch()
    with pytest.raises(ValueError, match=r"nothing\.pem"):
        ServiceAccess("https://127.0.0.1:1", ca_file=nothing)
    with pytest.raises(ValueError, match="https://"):
        ServiceAccess(NOWHERE, ca_file=nothing)
    arguments = ["--service=https://127.0.0.1:1", f"--service-ca={nothing}"]
    result = CliRunner().invoke(command.gateway, arguments)
    assert result.exit_code == 2, repr(result.exception)
    assert "nothing.pem" in result.stderr.replace("\n", "")


# -- following -------------------------------------------------------------------------------------


class FailsFirst(ServiceAccess):
    """Raises what nobody expects, once for each thing that is asked."""

    def __init__(self) -> None:
        super().__init__(NOWHERE)
        self.asked: dict[str, int] = {}
        self.followed = threading.Event()
        self.reported = threading.Event()

    def _fail_first(self, what: str) -> None:
        self.asked[what] = self.asked.get(what, 0) + 1
        if self.asked[what] == 1:
            raise RuntimeError(f"{what}: nobody expects this")

    def events(self, subscriber: str | None = None) -> Any:  # noqa: ARG002
        self._fail_first("events")
        return _NoEvents()

    def configuration(
        self,
        subscriber: str | None = None,  # noqa: ARG002
        *,
        etag: str | None = None,
    ) -> tuple[Configuration | None, str | None]:
        self.followed.set()
        return None, etag

    def post_heartbeat(self, heartbeat: Heartbeat) -> None:  # noqa: ARG002
        self._fail_first("heartbeat")
        self.reported.set()


class _NoEvents:
    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def close(self) -> None:
        pass


@contextmanager
def following(access: ServiceAccess, flows: FlowTable) -> Iterator[None]:
    def at_once(action: Callable[[], object]) -> None:
        action()

    follower = ServiceFollower(access, flows, at_once, report_seconds=0.02)
    follower.start()
    try:
        yield
    finally:
        follower.stop()


def test_whatever_goes_wrong_the_gateway_follows_and_reports_on() -> None:
    access = FailsFirst()
    with following(access, FlowTable()):
        wait_until(access.followed.is_set, "the gateway to follow again")
        wait_until(access.reported.is_set, "the gateway to report again")


# -- signing off -----------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [False, True])
def test_who_signs_off_leaves_no_registration_when_entering_fails(
    later: bool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is behind the plan's gateway; or the registration never comes into force."""
    monkeypatch.setattr(subscriber, "PATIENCE_SECONDS", 0.1)
    service = FakeService(free_port())
    if later:
        service.answer_later = True
        monkeypatch.setattr(service_client, "ANSWER_SECONDS", float(service_client.WAIT_SECONDS))
        monkeypatch.setattr(service, "configuration", lambda _: None)
    with running_service(service) as url:
        for sign_off in (False, True):
            crew = Subscriber(url, id="crew", switch="s", address=address, sign_off=sign_off)
            crew.subscribe("t", utility=LogUtility(weight=1.0))
            with pytest.raises(ClientError), crew:
                pytest.fail("there is nothing to connect to")
            assert ("crew" in service.subscribers) is not sign_off


def test_who_was_refused_takes_back_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ServiceClient(NOWHERE)
    removed: list[str] = []
    answers: list[Exception | None] = [ServiceRefused("no"), None, ServiceRefused("no")]

    def register(_: object) -> Any:
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(client, "register_subscriber", register)
    monkeypatch.setattr(client, "remove_subscriber", removed.append)
    mine = OwnRegistration(
        client,
        name="crew",
        switch="s",
        role="crew",
        transport="tcp",
        address=IPv4Address("10.0.0.1"),
        sign_off=True,
    )
    with pytest.raises(ServiceRefused):
        mine.put(())
    mine.leave()
    assert removed == [], "somebody else's of the same name stays"
    mine.put(())
    with pytest.raises(ServiceRefused):
        mine.put(())
    mine.leave()
    mine.leave()
    assert removed == ["crew"], "the first is still there"


@pytest.mark.parametrize("name", [None, "engine1"])
def test_the_command_signs_off_by_a_name_that_it_made_up(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}

    def make(*_: object, **options: Any) -> None:
        made.update(options)
        raise ClientError("enough")

    monkeypatch.setattr(sub_command, "Subscriber", make)
    arguments = ["t", "--address=10.0.0.1", *([] if name is None else [f"--id={name}"])]
    assert CliRunner().invoke(sub_command.sub, arguments).exit_code == 2
    assert made["sign_off"] is (name is None)
