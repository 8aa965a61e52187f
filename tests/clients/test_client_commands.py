"""The commands ``firedex sub`` and ``firedex pub``: output, exit codes and error messages."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firedex.wire import LogUtility
from firedex_clients import Publisher
from firedex_clients.commands import pub, sub
from firedex_clients.delivery_log import read_records
from tests.support.client_site import Site
from tests.support.free_ports import free_port
from tests.support.loopback_parts import TIMEOUT_SECONDS, Listener
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

SUB = "from firedex_clients.commands import sub; sub()"


@pytest.fixture
def site(broker: int) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(broker, running)


def test_sub_prints_what_pub_publishes(site: Site, address: str, tmp_path: Path) -> None:
    site.service.set_plan({"cli/#": 3})
    records = tmp_path / "records.parquet"
    arguments = ["cli/#", "--utility", "5", "--service", site.url, "--address", address]
    arguments += ["--id", "cli", "-v", "-C", "2", "--records", str(records)]
    # Run a separate process, because CliRunner captures the standard output of this process.
    with subprocess.Popen(
        [sys.executable, "-c", SUB, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(
                lambda: "cli" in site.service.subscribers,
                "sub to register",
                timeout_seconds=3 * TIMEOUT_SECONDS,
            )
            publication = ["cli/1", "-m", "hello", "--broker", f"127.0.0.1:{site.broker}"]

            def sub_has_ended() -> bool:
                assert CliRunner().invoke(pub, publication).exit_code == 0
                return process.poll() is not None

            wait_until(sub_has_ended, "two events", timeout_seconds=3 * TIMEOUT_SECONDS)
            assert process.stdout is not None
            output = process.stdout.read()
        finally:
            process.kill()
    assert process.returncode == 0, output
    first = output.splitlines()[0]
    assert first.startswith("cli/1 [flow 3 priority 3, ")
    assert first.endswith(" ms] hello")
    assert site.service.subscribers["cli"].subscriber.subscriptions[0].utility == LogUtility(
        weight=5.0
    )
    assert read_records(records).num_rows == 2


def test_sub_writes_its_records_after_sigterm(site: Site, address: str, tmp_path: Path) -> None:
    site.service.set_plan({"cli/#": 3})
    records = tmp_path / "records.parquet"
    arguments = ["cli/#", "--service", site.url, "--address", address, "--id", "cli"]
    output_file = tmp_path / "printed"
    with (
        output_file.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-c", SUB, *arguments, "--records", str(records)], stdout=output
        ) as process,
    ):
        try:
            wait_until(
                lambda: "cli" in site.service.subscribers,
                "sub to register",
                timeout_seconds=3 * TIMEOUT_SECONDS,
            )
            publication = ["cli/1", "-m", "hello", "--broker", f"127.0.0.1:{site.broker}"]

            def event_is_printed() -> bool:
                assert CliRunner().invoke(pub, publication).exit_code == 0
                return output_file.stat().st_size > 0

            wait_until(event_is_printed, "an event", timeout_seconds=3 * TIMEOUT_SECONDS)
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 143
        finally:
            process.kill()
    assert read_records(records).num_rows >= 1


def test_sub_rejects_a_records_file_in_a_missing_folder(tmp_path: Path) -> None:
    missing_folder_file = tmp_path / "none" / "records.parquet"
    result = CliRunner().invoke(sub, ["t", "--records", str(missing_folder_file)])
    assert result.exit_code == 2
    assert "is not a folder" in result.output


def test_sub_with_a_generated_id_removes_its_registration_after_sigterm(
    site: Site, address: str
) -> None:
    arguments = ["t", "--service", site.url, "--address", address]
    with subprocess.Popen([sys.executable, "-c", SUB, *arguments]) as process:
        try:
            wait_until(
                lambda: bool(site.service.subscribers),
                "sub to register",
                timeout_seconds=3 * TIMEOUT_SECONDS,
            )
            process.terminate()
            wait_until(lambda: not site.service.subscribers, "sub to remove its registration")
            assert process.wait(TIMEOUT_SECONDS) == 143
        finally:
            process.kill()


def test_sub_reports_invalid_filter_and_unreachable_service() -> None:
    result = CliRunner().invoke(sub, ["a#", "--address", "127.0.0.1"])
    assert result.exit_code == 2
    assert "'#' must be the complete last level" in result.stderr
    unreachable_url = f"http://127.0.0.1:{free_port()}"
    result = CliRunner().invoke(sub, ["a", "--address", "127.0.0.1", "--service", unreachable_url])
    assert result.exit_code == 2
    assert "does not answer" in result.stderr


def test_sub_lists_topics_without_a_filter(site: Site, address: str) -> None:
    publisher = Publisher("127.0.0.1", site.broker, id="p", service_url=site.url, switch="lan")
    publisher.declare("listed/1", event_bytes=10, rate_per_second=2.0)
    with publisher:
        pass
    options = ["--service", site.url, "--address", address]
    result = CliRunner().invoke(sub, ["--topics", *options])
    assert (result.exit_code, result.output) == (0, "listed/1\n")
    result = CliRunner().invoke(sub, options)
    assert result.exit_code == 2
    assert "give at least one FILTER" in result.stderr


def test_sub_interrupted_at_start_exits_with_27(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("firedex_clients.commands.Subscriber", raise_interrupt)
    result = CliRunner().invoke(sub, ["a", "-C", "1", "--address", "127.0.0.1"])
    assert result.exit_code == 27


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_pub_reports_an_unknown_host(transport: str) -> None:
    arguments = ["t", "-m", "x", "--broker", "no-such-host.invalid:1", "--transport", transport]
    result = CliRunner().invoke(pub, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("firedex: no-such-host.invalid:1: ")


def test_sub_exits_with_27_after_wait_seconds(site: Site, address: str) -> None:
    arguments = ["quiet", "--service", site.url, "--address", address, "-C", "1", "-W", "0.2"]
    assert CliRunner().invoke(sub, arguments).exit_code == 27


def test_sub_prints_events_as_json(site: Site, address: str) -> None:
    with Listener(site.broker) as plain:
        plain.publish_and_wait("json/1", b"kept", retain=True)
        arguments = ["json/#", "--service", site.url, "--address", address, "-C", "1", "--json"]
        result = CliRunner().invoke(sub, arguments)
        plain.publish_and_wait("json/1", b"", retain=True)
    event = json.loads(result.output)
    assert (event["topic"], event["payload"], event["retained"]) == ("json/1", "kept", True)
    assert event["delay_seconds"] is None


@pytest.mark.parametrize("arguments", [["-m", "x", "--repeat", "3", "-q", "1"], []])
def test_pub_repeats_a_message_or_reads_lines(broker: int, arguments: list[str]) -> None:
    with Listener(broker) as plain:
        plain.subscribe("pub/lines")
        result = CliRunner().invoke(
            pub, ["pub/lines", "--broker", f"127.0.0.1:{broker}", *arguments], input="x\nx\nx\n"
        )
        assert result.exit_code == 0, result.output
        wait_until(lambda: plain.payloads() == [b"x"] * 3, "three events")


@pytest.mark.parametrize("command", [sub, pub])
def test_help_has_an_example(command: Any) -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert f"Example: firedex {command.name} " in " ".join(result.output.split())
