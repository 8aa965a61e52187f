"""How the commands `sub` and `pub` are used, and what they say."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from client_site import Site
from free_ports import free_port
from loopback_parts import PATIENCE_SECONDS, Listener, wait_until

from firedex.wire import LogUtility
from firedex_clients import Publisher
from firedex_clients.delivery_log import read_records
from firedex_clients.pub_command import pub
from firedex_clients.sub_command import sub

SUB = "from firedex_clients.sub_command import sub; sub()"


@pytest.fixture
def site(broker: int) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(broker, running)


def test_sub_prints_what_pub_publishes(site: Site, address: str, tmp_path: Path) -> None:
    site.service.set_plan({"cli/#": 3})
    records = tmp_path / "records.parquet"
    arguments = ["cli/#", "--utility", "5", "--service", site.url, "--address", address]
    arguments += ["--id", "cli", "-v", "-C", "2", "--records", str(records)]
    # A process of its own: CliRunner takes the standard output of this whole process for itself.
    with subprocess.Popen(
        [sys.executable, "-c", SUB, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(
                lambda: "cli" in site.service.subscribers,
                "it to register",
                seconds=3 * PATIENCE_SECONDS,
            )
            publication = ["cli/1", "-m", "hello", "--broker", f"127.0.0.1:{site.broker}"]

            def done() -> bool:
                assert CliRunner().invoke(pub, publication).exit_code == 0
                return process.poll() is not None

            wait_until(done, "two events", seconds=3 * PATIENCE_SECONDS)
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


def test_sub_that_is_ended_writes_its_records_first(
    site: Site, address: str, tmp_path: Path
) -> None:
    site.service.set_plan({"cli/#": 3})
    records = tmp_path / "records.parquet"
    arguments = ["cli/#", "--service", site.url, "--address", address, "--id", "cli"]
    printed = tmp_path / "printed"
    with (
        printed.open("wb") as into,
        subprocess.Popen(
            [sys.executable, "-c", SUB, *arguments, "--records", str(records)], stdout=into
        ) as process,
    ):
        try:
            wait_until(
                lambda: "cli" in site.service.subscribers,
                "it to register",
                seconds=3 * PATIENCE_SECONDS,
            )
            publication = ["cli/1", "-m", "hello", "--broker", f"127.0.0.1:{site.broker}"]

            def heard() -> bool:
                assert CliRunner().invoke(pub, publication).exit_code == 0
                return printed.stat().st_size > 0

            wait_until(heard, "an event", seconds=3 * PATIENCE_SECONDS)
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 143
        finally:
            process.kill()
    assert read_records(records).num_rows >= 1


def test_sub_says_at_once_that_it_could_not_write_its_records(tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "records.parquet"
    result = CliRunner().invoke(sub, ["t", "--records", str(nowhere)])
    assert result.exit_code == 2
    assert "is no folder" in result.output


def test_sub_under_a_name_of_its_own_making_signs_off_when_it_is_ended(
    site: Site, address: str
) -> None:
    arguments = ["t", "--service", site.url, "--address", address]
    with subprocess.Popen([sys.executable, "-c", SUB, *arguments]) as process:
        try:
            wait_until(
                lambda: bool(site.service.subscribers),
                "it to register",
                seconds=3 * PATIENCE_SECONDS,
            )
            process.terminate()
            wait_until(lambda: not site.service.subscribers, "it to sign off")
            assert process.wait(PATIENCE_SECONDS) == 143
        finally:
            process.kill()


def test_sub_says_what_is_wrong() -> None:
    result = CliRunner().invoke(sub, ["a#", "--address", "127.0.0.1"])
    assert result.exit_code == 2
    assert "'#' must be the whole of the last level" in result.stderr
    away = f"http://127.0.0.1:{free_port()}"
    result = CliRunner().invoke(sub, ["a", "--address", "127.0.0.1", "--service", away])
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
    assert "name at least one FILTER" in result.stderr


def test_sub_interrupted_at_once_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("firedex_clients.sub_command.Subscriber", interrupted)
    result = CliRunner().invoke(sub, ["a", "-C", "1", "--address", "127.0.0.1"])
    assert result.exit_code == 27


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_pub_says_that_a_host_is_unknown(transport: str) -> None:
    arguments = ["t", "-m", "x", "--broker", "no-such-host.invalid:1", "--transport", transport]
    result = CliRunner().invoke(pub, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("firedex: no-such-host.invalid:1: ")


def test_sub_ends_after_its_time_with_mosquittos_code(site: Site, address: str) -> None:
    arguments = ["quiet", "--service", site.url, "--address", address, "-C", "1", "-W", "0.2"]
    assert CliRunner().invoke(sub, arguments).exit_code == 27


def test_sub_prints_json(site: Site, address: str) -> None:
    with Listener(site.broker) as plain:
        plain.publish_surely("json/1", b"kept", retain=True)
        arguments = ["json/#", "--service", site.url, "--address", address, "-C", "1", "--json"]
        result = CliRunner().invoke(sub, arguments)
        plain.publish_surely("json/1", b"", retain=True)
    found = json.loads(result.output)
    assert (found["topic"], found["payload"], found["retained"]) == ("json/1", "kept", True)
    assert found["delay_seconds"] is None


@pytest.mark.parametrize("arguments", [["-m", "x", "--repeat", "3", "-q", "1"], []])
def test_pub_reads_lines_or_repeats(broker: int, arguments: list[str]) -> None:
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
