"""Learnt weights loaded into a running service, and what they make of a plan."""

import json
from pathlib import Path

from click.testing import CliRunner
from service_site import Client, publisher, subscriber

from firedex.service.profile_differences import difference_of
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


def test_a_dry_run_shows_what_would_change_and_changes_nothing(
    running: RunningService, tmp_path: Path
) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps([to_plain(LEARNT)]))
    at = ("--service", running.url)
    code, said = run("load", str(file), "--dry-run", *at)
    assert code == 0
    assert said.splitlines()[:2] == [
        "overhaul: 2 new",
        "  + crew smoke/1: log utility of weight 1.25",
    ]
    assert run("show", *at) == (0, "")
    assert run("load", str(file), *at)[0] == 0
    other = PhaseProfile(
        phase="overhaul",
        rules=(
            ProfileRule(filter="smoke/1", role="crew", utility=LogUtility(weight=2.0)),
            ProfileRule(filter="heat/#", role="crew", factor=0.5),
        ),
    )
    file.write_text(json.dumps([to_plain(other)]))
    assert run("load", str(file), "--dry-run", *at)[1].splitlines() == [
        "overhaul: 1 new, 1 changed, 1 gone",
        "  + crew heat/#: times 0.5",
        "  ~ crew smoke/1: log utility of weight 2, was log utility of weight 1.25",
        "  - crew smoke/#: log utility of weight 4.5",
        "nothing was changed (--dry-run)",
    ]


def test_files_that_cannot_be_loaded_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    """Nobody answers at the address: who asked would say so."""
    file, nowhere = tmp_path / "profiles.json", ("--service", "http://127.0.0.1:1")
    rule = to_plain(ProfileRule(filter="smoke/1", role="crew", factor=1.0))
    for content, said in (
        ("nonsense", "JSON"),
        ("[]", "there are no profiles in it"),
        (json.dumps([to_plain(LEARNT)] * 2), "more than one profile for overhaul"),
        (json.dumps([{"phase": "overhaul", "rules": [rule] * 1001}]), "1000"),
        (json.dumps(to_plain(LEARNT)), "must be a list"),
    ):
        file.write_text(content)
        code, output = run("load", str(file), *nowhere)
        assert code == 1
        assert str(file) in output
        assert said in output
    file.write_text(json.dumps([to_plain(LEARNT)]))
    code, output = run("load", str(file), *nowhere)
    assert code == 1
    assert "overhaul: http://127.0.0.1:1 does not answer" in output
    assert "nothing was loaded" in output


def test_differences_tell_of_order_too() -> None:
    first, second = LEARNT.rules
    assert str(difference_of([], [])) == "no rules"
    assert str(difference_of([first, second], [first, second])) == "2 as before"
    turned = difference_of([first, second], [second, first])
    assert str(turned) == "2 as before, in another order"
    assert difference_of([second], [first, second]).reordered is False
