"""Registration of a subscriber: removal on closing, and errors of the service."""

import asyncio
from ipaddress import IPv4Address
from typing import Any

import pytest
from click.testing import CliRunner

from firedex.transport import service_client
from firedex.transport.http import ErrorResponse
from firedex.wire import LogUtility
from firedex_clients import (
    ClientError,
    ServiceRefused,
    ServiceUnreachable,
    Subscriber,
    commands,
    session,
)
from firedex_clients.registration import Registration, SubscriberDetails
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.http_server import serve_http


@pytest.mark.parametrize("activated", [True, False])
def test_registration_is_removed_if_opening_fails(
    activated: bool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway of the plan is unreachable, or the registration is never activated."""
    monkeypatch.setattr(session, "OPEN_SECONDS", 0.1)
    service = FakeService(free_port())
    if not activated:
        service.answer_later = True
        monkeypatch.setattr(service_client, "REGISTRATION_SECONDS", 2.0)
        monkeypatch.setattr(service, "configuration", lambda _: None)
    with running_service(service) as url:
        for remove_registration in (False, True):
            crew = Subscriber(
                url, id="crew", switch="s", address=address, remove_registration=remove_registration
            )
            crew.subscribe("t", utility=LogUtility(weight=1.0))
            with pytest.raises(ClientError), crew:
                pytest.fail("there is nothing to connect to")
            assert ("crew" in service.subscribers) is not remove_registration


class FakeClient:
    """A service client that raises the given errors in turn; None is a success."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = list(answers)
        self.removed: list[str] = []

    async def register_subscriber(self, _: object) -> None:
        if (answer := self._answers.pop(0)) is not None:
            raise answer

    async def remove_subscriber(self, name: str, **_: object) -> None:
        self.removed.append(name)


def test_rejected_registration_is_not_removed() -> None:
    rejection = ErrorResponse("forbidden", 403)
    client: Any = FakeClient(rejection, None, rejection)
    details = SubscriberDetails(
        id="crew", switch="s", role="crew", transport="tcp", address=IPv4Address("10.0.0.1")
    )

    async def register() -> None:
        registration = Registration(client, details)
        with pytest.raises(ErrorResponse):
            await registration.put(())
        await registration.remove()
        assert client.removed == [], "another subscriber may have registered with this id"
        await registration.put(())
        with pytest.raises(ErrorResponse):
            await registration.put(())
        await registration.remove()
        await registration.remove()
        assert client.removed == ["crew"], "the first registration still exists"

    asyncio.run(register())


@pytest.mark.parametrize("name", [None, "engine1"])
def test_sub_command_removes_the_registration_of_a_generated_id(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_options: dict[str, Any] = {}

    def record_options(*_: object, **options: Any) -> None:
        used_options.update(options)
        raise ClientError("stop here")

    monkeypatch.setattr(commands, "Subscriber", record_options)
    arguments = ["t", "--address=10.0.0.1", *([] if name is None else [f"--id={name}"])]
    assert CliRunner().invoke(commands.sub, arguments).exit_code == 2
    assert used_options["remove_registration"] is (name is None)


def make_subscriber(url: str) -> Subscriber:
    return Subscriber(url, id="crew", switch="s", address="127.0.0.1")


def test_unreachable_service_is_a_client_error() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ServiceUnreachable, match=f"{url} does not answer"):
        make_subscriber(url).topics()


def test_error_of_the_service_is_a_client_error() -> None:
    with (
        serve_http(lambda request: request.respond(500, b"<html>")) as url,
        pytest.raises(ServiceRefused),
    ):
        make_subscriber(url).topics()


@pytest.mark.parametrize("url", ["127.0.0.1:8088", "localhost:8088", "ftp://127.0.0.1:8088"])
def test_invalid_url_is_a_client_error(url: str) -> None:
    with pytest.raises(ClientError, match="http or https://HOST:PORT"):
        make_subscriber(url)
