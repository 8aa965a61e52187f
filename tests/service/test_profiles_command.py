"""Utility profiles loaded into a running service, and their effect on plans."""

import json
from pathlib import Path

from click.testing import CliRunner

from firedex.service.commands.profiles import profiles
from firedex.service.planner.utility_policy import difference_of
from firedex.service.running import RunningService
from firedex.wire import LogUtility, to_plain
from firedex.wire.incident import PhaseProfile, ProfileRule
from tests.support.service_site import Client, publisher, subscriber

LEARNT = PhaseProfile(
    phase="overhaul",
    rules=(
        ProfileRule(filter="smoke/1", role="crew", utility=LogUtility(weight=1.25)),
        ProfileRule(filter="smoke/#", role="crew", utility=LogUtility(weight=4.5)),
    ),
)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(profiles, arguments)
    return result.exit_code, result.output


def test_loaded_profiles_apply_in_their_phase(
    running: RunningService, client: Client, tmp_path: Path
) -> None:
    client.register(publisher("p0", {"smoke/1": 10.0, "smoke/2": 10.0}))
    client.register(subscriber("crew", {"smoke/1": 10.0, "smoke/2": 1.0}))
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps([to_plain(LEARNT)]))
    service_options = ("--service", running.url)
    assert run("load", str(file), *service_options) == (0, "overhaul: 2 rules\n")
    assert run("show", *service_options) == (0, "overhaul: 2 rules\n")
    code, output = run("show", *service_options, "--json")
    assert (code, json.loads(output)) == (0, [to_plain(LEARNT)])
    client.ask("POST", "/v1/incident?wait_seconds=20", {"title": "fire", "phase": "overhaul"})
    rows = client.get("/v1/predictions").json["subscriptions"]
    most = {row["filter"]: row["maximum_utility"] for row in rows}
    assert most["smoke/2"] / most["smoke/1"] == 4.5 / 1.25


def test_file_with_an_invalid_profile_is_rejected_completely(
    running: RunningService, tmp_path: Path
) -> None:
    file = tmp_path / "profiles.json"
    wrong = {"phase": "overhaul", "rules": [{"filter": "#", "role": "crew"}]}
    file.write_text(json.dumps([to_plain(LEARNT), wrong]))
    code, output = run("load", str(file), "--service", running.url)
    assert code == 1
    assert "exactly one of 'utility' and 'factor' must be given" in output
    assert run("show", "--service", running.url) == (0, "")


def test_dry_run_shows_differences_and_changes_nothing(
    running: RunningService, tmp_path: Path
) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps([to_plain(LEARNT)]))
    service_options = ("--service", running.url)
    code, output = run("load", str(file), "--dry-run", *service_options)
    assert code == 0
    assert output.splitlines()[:2] == [
        "overhaul: 2 new",
        "  + crew smoke/1: log utility of weight 1.25",
    ]
    assert run("show", *service_options) == (0, "")
    assert run("load", str(file), *service_options)[0] == 0
    other = PhaseProfile(
        phase="overhaul",
        rules=(
            ProfileRule(filter="smoke/1", role="crew", utility=LogUtility(weight=2.0)),
            ProfileRule(filter="heat/#", role="crew", factor=0.5),
        ),
    )
    file.write_text(json.dumps([to_plain(other)]))
    assert run("load", str(file), "--dry-run", *service_options)[1].splitlines() == [
        "overhaul: 1 new, 1 changed, 1 removed",
        "  + crew heat/#: times 0.5",
        "  ~ crew smoke/1: log utility of weight 2, was log utility of weight 1.25",
        "  - crew smoke/#: log utility of weight 4.5",
        "nothing was changed (--dry-run)",
    ]


def test_invalid_files_are_reported_before_anything_is_sent(tmp_path: Path) -> None:
    """The service is unreachable, so sending anything would fail with another message."""
    file, unreachable = tmp_path / "profiles.json", ("--service", "http://127.0.0.1:1")
    rule = to_plain(ProfileRule(filter="smoke/1", role="crew", factor=1.0))
    for content, message in (
        ("nonsense", "JSON"),
        ("[]", "the file has no profiles"),
        (json.dumps([to_plain(LEARNT)] * 2), "more than one profile for overhaul"),
        (json.dumps([{"phase": "overhaul", "rules": [rule] * 1001}]), "1000"),
        (json.dumps(to_plain(LEARNT)), "must be a list"),
    ):
        file.write_text(content)
        code, output = run("load", str(file), *unreachable)
        assert code == 1
        assert str(file) in output
        assert message in output
    file.write_text(json.dumps([to_plain(LEARNT)]))
    code, output = run("load", str(file), *unreachable)
    assert code == 1
    assert "overhaul: http://127.0.0.1:1 does not answer" in output
    assert "nothing was loaded" in output


def test_differences_include_the_order() -> None:
    first, second = LEARNT.rules
    assert str(difference_of([], [])) == "no rules"
    assert str(difference_of([first, second], [first, second])) == "2 unchanged"
    reordered = difference_of([first, second], [second, first])
    assert str(reordered) == "2 unchanged, in a different order"
    assert difference_of([second], [first, second]).reordered is False
