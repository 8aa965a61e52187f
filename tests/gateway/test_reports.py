"""Reports of the gateway to the service: event counts and heartbeats."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.reports import flow_statistics, service_follower
from firedex.transport.http import HttpTarget
from firedex.transport.service_client import ServiceClient
from tests.support.fake_service import FakeService, running_service
from tests.support.parts_site import configuration, flow


def test_statistics_contain_valid_topics_and_start_a_new_window() -> None:
    table, start = FlowTable(), datetime.now(UTC)
    table.apply(configuration(flow("10.0.0.5"), version=3))
    (managed,) = table.flows()
    for topic in (b"smoke/1", b"not/\xff", b"wild/#"):
        managed.counts.topic(topic).offered += 2
    (report,) = flow_statistics(table, "gateway", start, start + timedelta(seconds=5))
    assert [(each.topic, each.offered_events) for each in report.topics] == [("smoke/1", 2)]
    assert (report.configuration_version, report.window_seconds) == (3, 5.0)
    assert list(flow_statistics(table, "gateway", start, start + timedelta(seconds=5))) == []


def test_gateway_applies_configurations_and_reports() -> None:
    service, table = FakeService(1), FlowTable()
    service.set_plan({})

    async def follow(url: str) -> None:
        async with ServiceClient(HttpTarget(url=url)) as client, asyncio.timeout(60):
            broker = ("127.0.0.1", int(url.rpartition(":")[2]))
            follower = service_follower(client, table, broker=broker, report_seconds=0.05)
            running = asyncio.create_task(follower.run())
            while table.version != 1 or len(service.heartbeats) < 2:
                await asyncio.sleep(0.01)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    with running_service(service) as url:
        asyncio.run(follow(url))
    assert {each.kind for each in service.heartbeats} == {"gateway", "broker"}
