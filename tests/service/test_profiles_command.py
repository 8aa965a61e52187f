"""Learnt weights loaded into a running service, and what they make of a plan."""

import json
from pathlib import Path

from click.testing import CliRunner
from service_site import Client, publisher, subscriber

from firedex.service.profiles_command import profiles
from firedex.service.running import RunningService
from firedex.wire import LogUtility, to_plain
from firedex.wire.incident import PhaseProfile, ProfileRule

LEARNT = PhaseProfile(
    phase="overhaul",
    rules=(
        ProfileRule(filter="smoke/1", role="crew", utility=LogUtility(weight=1.25)),
        ProfileRule(filter="smoke/#", role="crew", utility=LogUtility(weight=4.5)),
    ),
)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(profiles, words)
    return result.exit_code, result.output


def test_learnt_profiles_are_loaded_and_count_in_their_phase(
    running: RunningService, client: Client, tmp_path: Path
) -> None:
    client.register(publisher("p0", {"smoke/1": 10.0, "smoke/2": 10.0}))
    client.register(subscriber("crew", {"smoke/1": 10.0, "smoke/2": 1.0}))
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps([to_plain(LEARNT)]))
    at = ("--service", running.url)
    assert run("load", str(file), *at) == (0, "overhaul: 2 rules\n")
    assert run("show", *at) == (0, "overhaul: 2 rules\n")
    code, said = run("show", *at, "--json")
    assert (code, json.loads(said)) == (0, [to_plain(LEARNT)])
    client.ask("POST", "/v1/incident?wait_seconds=20", {"title": "fire", "phase": "overhaul"})
    rows = client.get("/v1/predictions").json["subscriptions"]
    most = {row["filter"]: row["maximum_utility"] for row in rows}
    assert most["smoke/2"] / most["smoke/1"] == 4.5 / 1.25


def test_a_file_that_is_not_profiles_is_refused_whole(
    running: RunningService, tmp_path: Path
) -> None:
    file = tmp_path / "profiles.json"
    wrong = {"phase": "overhaul", "rules": [{"filter": "#", "role": "crew"}]}
    file.write_text(json.dumps([to_plain(LEARNT), wrong]))
    code, said = run("load", str(file), "--service", running.url)
    assert code == 1
    assert "give either 'utility' or 'factor'" in said
    assert run("show", "--service", running.url) == (0, "")
