"""Asking the service, and the gateway's following it: nothing that is said ends either for good."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner
from fake_service import FakeService, running_service
from loopback_parts import wait_until

from firedex.gateway import command
from firedex.gateway.flow_table import FlowTable
from firedex.gateway.service_following import ServiceFollower
from firedex.service_access import ServiceAccess
from firedex.wire import Configuration, Heartbeat, Statistics, TopicCount

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


@pytest.mark.parametrize("token", ["abc\r", "a b", "schlüssel", "a\nX-Other: 1"])
def test_a_token_that_fits_no_header_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token") as refusal:
        ServiceAccess(NOWHERE, token)
    assert token not in str(refusal.value), "it is a secret"
    result = CliRunner().invoke(command.gateway, [f"--token={token}", f"--service={NOWHERE}"])
    assert result.exit_code == 2, repr(result.exception)
    assert "--token" in result.stderr


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
        self, subscriber: str | None = None, *, etag: str | None = None  # noqa: ARG002
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
def following(access: ServiceAccess) -> Iterator[None]:
    def at_once(action: Callable[[], object]) -> None:
        action()

    follower = ServiceFollower(access, FlowTable(), at_once, report_seconds=0.02)
    follower.start()
    try:
        yield
    finally:
        follower.stop()


def test_whatever_goes_wrong_the_gateway_follows_and_reports_on() -> None:
    access = FailsFirst()
    with following(access):
        wait_until(access.followed.is_set, "the gateway to follow again")
        wait_until(access.reported.is_set, "the gateway to report again")
