"""The OpenAPI document, and a check of the service against it with schemathesis."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firedex.service.web.app import ENDPOINTS
from firedex.service.web.openapi import openapi_document
from tests.support.service_site import TOKENS_WITHOUT_LIMITS, Client, publisher, serving, subscriber

pytestmark = pytest.mark.slow

DOCUMENT = openapi_document(ENDPOINTS)
EVENT_STREAM = "/v1/events"


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
    declared = {(endpoint.path, endpoint.method.lower()) for endpoint in ENDPOINTS} | {
        (EVENT_STREAM, "get")
    }
    documented = {(path, m) for path, item in DOCUMENT["paths"].items() for m in item}
    assert declared == documented


def test_schemas_use_the_names_of_the_json_fields() -> None:
    assert "from" in DOCUMENT["components"]["schemas"]["Link"]["properties"]
    assert "from_" not in DOCUMENT["components"]["schemas"]["Link"]["properties"]


def test_documentation_page_loads_nothing_from_other_hosts(service: tuple[str, str]) -> None:
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
# The service also rejects what JSON Schema cannot express: invalid MQTT names, utilities that are
# not concave, a body with another id than the path (400), stale revisions (412), reused keys (422).
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "400", "404", "409", "412", "422"]
"""


def test_api_matches_its_document_in_schemathesis(service: tuple[str, str], tmp_path: Path) -> None:
    """Run all checks: no server errors, no undocumented responses, no invalid input accepted."""
    url, token = service
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(configuration)]
    command += ["run", f"{url}/v1/openapi.json"]
    command += ["-H", f"Authorization: Bearer {token}", "--checks", "all", "--workers", "1"]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "4", "--no-color"]
    command += ["--exclude-path", EVENT_STREAM, "--generation-deterministic", "--warnings", "off"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    tested = re.search(r"Tested: ([0-9]+)", result.stdout)
    # schemathesis does not test the address of the document itself.
    assert tested, result.stdout[-2500:]
    assert int(tested.group(1)) == len(ENDPOINTS) - 1
    assert re.search(r"[0-9]{4} generated", result.stdout), result.stdout[-1500:]
