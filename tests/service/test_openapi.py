"""The OpenAPI document, and the service held to it by schemathesis with all of its checks."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_site import TOKENS_WITHOUT_LIMITS, Client, publisher, serving, subscriber

from firedex.service.openapi import openapi_document
from firedex.service.web import ENDPOINTS

DOCUMENT = openapi_document(ENDPOINTS)
ENDLESS = "/v1/events"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    with serving(folder / "s.sqlite", **TOKENS_WITHOUT_LIMITS) as running:
        token = running.service.tokens.create("chief", "command")
        client = Client(running.url, token)
        client.register(publisher("p0", {"smoke/1": 1.0}))
        client.register(subscriber("crew", {"smoke/1": 1.0}))
        yield running.url, token


def test_every_endpoint_is_in_the_document() -> None:
    stated = {(of.path, of.method.lower()) for of in ENDPOINTS} | {(ENDLESS, "get")}
    written = {(path, m) for path, item in DOCUMENT["paths"].items() for m in item}
    assert stated == written


def test_aliases_are_written_as_they_are_sent() -> None:
    assert "from" in DOCUMENT["components"]["schemas"]["Link"]["properties"]
    assert "from_" not in DOCUMENT["components"]["schemas"]["Link"]["properties"]


def test_the_page_and_its_scripts_come_from_here(service: tuple[str, str]) -> None:
    client = Client(service[0])
    page = client.get("/v1/docs/")
    assert page.status == 200
    assert b"http" not in page.body.replace(b"http-equiv", b"")
    for name in ("swagger-ui.css", "swagger-ui-bundle.js"):
        assert name.encode() in page.body
        assert len(client.get(f"/v1/docs/{name}").body) > 10_000
    assert client.get("/v1/docs/../web.py").status == 404
    assert client.get("/v1/openapi.json").json["openapi"] == "3.1.0"


CONFIGURATION = """
# What JSON Schema cannot say is refused too: names by MQTT's rules, curves that are not concave,
# a body that says another name than the path (400), stale revisions (412), reused keys (422).
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "400", "404", "409", "412", "422"]
"""


def test_schemathesis(service: tuple[str, str], tmp_path: Path) -> None:
    """With all checks: no server error, no undocumented response, nothing wrong accepted."""
    url, token = service
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    program = Path(sys.executable).parent / "schemathesis"
    command = [str(program), "--config-file", str(configuration), "run", f"{url}/v1/openapi.json"]
    command += ["-H", f"Authorization: Bearer {token}", "--checks", "all", "--workers", "1"]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "4", "--no-color"]
    command += ["--exclude-path", ENDLESS, "--generation-deterministic", "--warnings", "off"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    tested = re.search(r"Tested: ([0-9]+)", done.stdout)
    # All but the document's own address, which schemathesis leaves out.
    assert tested, done.stdout[-2500:]
    assert int(tested.group(1)) == len(ENDPOINTS) - 1
    assert re.search(r"[0-9]{4} generated", done.stdout), done.stdout[-1500:]
