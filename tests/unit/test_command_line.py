"""The ``firedex`` command: what it prints, what it exits with, what it refuses."""

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click.testing import CliRunner, Result
from small_site import Document, assign, published, site, subscribed, topic, write

from firedex import __version__
from firedex.benchmarks import OWN, BenchmarkResult, benchmark_names
from firedex.benchmarks.result import Comparison
from firedex.cli.commands import firedex
from firedex.wire import DropPolicy, Prediction, PriorityPolicy, from_json

HIGH_RISE = "builtin:high-rise"
COMMANDS = sorted(firedex.commands)


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    runner = CliRunner()
    return runner.invoke(firedex, arguments, env=env, auto_envvar_prefix="FIREDEX")


def printed_json(*arguments: str, env: dict[str, str] | None = None) -> Any:
    result = run(*arguments, "--json", env=env)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def high_rise() -> Document:
    text = (resources.files("firedex") / "scenarios" / "high-rise.yaml").read_text("utf-8")
    document: Document = yaml.safe_load(text)
    return document


def test_check_is_content_with_a_right_scenario(tmp_path: Path) -> None:
    file = write(tmp_path, site())
    result = run("check", file)
    assert result.exit_code == 0
    assert result.output.startswith(f"{file}: no problems\n")
    printed = printed_json("check", file)
    assert (printed["valid"], printed["problems"]) == (True, [])


def test_check_advises_on_what_is_probably_not_meant(tmp_path: Path) -> None:
    document = site()
    document["topics"].append({"name": "unheard", "event_bytes": 5})
    document["subscribers"][0]["subscriptions"][0]["filter"] = "heet/+/rack"
    del document["assignment"]
    result = run("check", write(tmp_path, document))
    assert result.exit_code == 0
    assert "nobody publishes 'unheard'" in result.output
    assert "'heet/+/rack'" in result.output
    assert "matches no topic" in result.output


@pytest.mark.parametrize("columns", ["60", "80"])
def test_no_number_is_cut_off(columns: str) -> None:
    result = CliRunner(env={"COLUMNS": columns}).invoke(firedex, ["plan", HIGH_RISE, "--all"])
    assert result.exit_code == 0
    assert "…" not in result.output
    assert "p95" in result.output
    assert "missed" in result.output


def test_what_plan_writes_predict_reads(tmp_path: Path) -> None:
    file = tmp_path / "planned.yaml"
    planned = printed_json("plan", HIGH_RISE, "--write", str(file))
    assert planned.pop("plan")["drop_policy"] == "deadline-aware"
    assert printed_json("predict", str(file)) == planned


def test_flags_have_twins_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIREDEX_PLAN_ALL", "1")
    result = CliRunner().invoke(firedex, ["plan", HIGH_RISE], auto_envvar_prefix="FIREDEX")
    assert "By subscription" in result.output


def test_check_lists_everything_that_is_wrong(tmp_path: Path) -> None:
    document = site(nmae="x")
    document["subscribers"][0]["switch"] = "s9"
    document["publishers"][0]["publications"][0]["rate_per_second"] = -1
    file = write(tmp_path, document)
    result = run("check", file)
    assert result.exit_code == 2
    assert f"{file}: 3 problems" in result.output
    for said in ("unknown key 'nmae'", "unknown switch 's9'", "rate_per_second: must be greater"):
        assert said in result.output


def test_check_tells_machines_line_path_and_message(tmp_path: Path) -> None:
    file = write(tmp_path, "name: x\ntopics: []\nnetwrk: {}\n")
    result = run("check", file, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 2
    assert found["valid"] is False
    unknown = next(p for p in found["problems"] if p["path"] == ["netwrk"])
    assert unknown == {
        "line": 3,
        "path": ["netwrk"],
        "message": "unknown key 'netwrk'; did you mean 'network'?",
    }


@pytest.mark.parametrize("command", ["check", "predict", "plan"])
def test_a_missing_file_is_a_mistake_of_the_user(command: str) -> None:
    result = run(command, "absent.yaml")
    assert result.exit_code == 2
    assert "cannot read 'absent.yaml': No such file" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["predict", "plan"])
def test_a_wrong_file_is_a_mistake_of_the_user(tmp_path: Path, command: str) -> None:
    result = run(command, write(tmp_path, site(nmae="x")))
    assert result.exit_code == 2
    assert "did you mean 'name'" in result.stderr


@pytest.mark.parametrize("command", ["check", "predict", "plan"])
def test_an_unknown_built_in_scenario_lists_what_there_is(command: str) -> None:
    result = run(command, "builtin:low-rise")
    assert result.exit_code == 2
    assert "high-rise" in result.stderr


def has_the_promised_fields(prediction: Any) -> None:
    """DESIGN.md, 'Command line'."""
    assert prediction["subscriptions"]
    for row in prediction["subscriptions"]:
        assert {
            "subscriber",
            "filter",
            "flow",
            "priority",
            "drop_rate",
            "success_rate",
            "delay_mean_seconds",
            "delay_p95_seconds",
        } <= set(row)
    for row in prediction["classes"]:
        assert {"priority", "success_rate", "delay_mean_seconds"} <= set(row)
    for row in prediction["switches"]:
        assert {"id", "utilization"} <= set(row)
    assert {"utility", "achieved_utility_rate"} <= set(prediction)
    assert from_json(Prediction, json.dumps(prediction))


def test_predict_prints_the_promised_json(tmp_path: Path) -> None:
    prediction = printed_json("predict", write(tmp_path, site()))
    has_the_promised_fields(prediction)
    assert prediction["subscriptions"][0]["success_rate"] == 1.0
    assert [switch["id"] for switch in prediction["switches"]] == ["s0", "s1"]


def test_plan_prints_the_promised_json() -> None:
    prediction = printed_json("plan", HIGH_RISE)
    report = prediction.pop("plan")
    has_the_promised_fields(prediction)
    assert len(prediction["subscriptions"]) == 32
    assert report["solver"] == "kkt"
    assert report["utility_gap"] < 1e-6
    assert len(report["unmet_deadlines"]) == prediction["deadlines_missed"]


def test_plan_is_the_same_to_the_byte() -> None:
    once, twice = (run("plan", HIGH_RISE, "--json").stdout for _ in range(2))
    assert once == twice


def test_compare_shows_every_policy_and_what_its_classes_get() -> None:
    shown = run("plan", HIGH_RISE, "--compare")
    assert shown.exit_code == 0
    for policy in (*get_args(PriorityPolicy), *get_args(DropPolicy)):
        assert policy in shown.output
    compared = printed_json("plan", HIGH_RISE, "--compare")["policies"]
    pairs = [(entry["priority_policy"], entry["drop_policy"]) for entry in compared]
    assert len(pairs) == len(set(pairs)) == 9
    best = max(compared, key=lambda entry: entry["timely_utility"])
    assert best["drop_policy"] in ("optimized", "deadline-aware")
    for entry in compared:
        assert entry["problem"] is None
        assert 0 < entry["achieved_utility_rate"] <= 1
        assert entry["classes"][0]["priority"] == 0


def test_compare_says_which_policy_cannot(tmp_path: Path) -> None:
    document = high_rise()
    document["planning"]["priorities"] = 1
    file = write(tmp_path, document)
    shown = run("plan", file, "--compare")
    assert shown.exit_code == 0
    assert "'linear' cannot bring 'fireground to hosts'" in " ".join(shown.output.split())
    compared = printed_json("plan", file, "--compare")["policies"]
    problems = {entry["drop_policy"]: entry["problem"] for entry in compared}
    assert problems["linear"]
    assert problems["optimized"] is None


def test_plan_counts_moves_from_the_previous_plan(tmp_path: Path) -> None:
    planned = tmp_path / "planned.yaml"
    first = printed_json("plan", HIGH_RISE, "--write", str(planned))
    assert first["plan"]["moved_subscriptions"] is None
    again = printed_json("plan", HIGH_RISE, "--previous", str(planned))
    assert again["plan"]["moved_subscriptions"] == 0
    shown = run("plan", HIGH_RISE, "--previous", str(planned), "--priority-policy", "random")
    assert "moved since the previous plan: " in shown.output
    without = run("plan", HIGH_RISE, "--previous", HIGH_RISE)
    assert without.exit_code == 2
    assert "--previous: builtin:high-rise has no assignment" in without.stderr


def test_both_solvers_come_to_the_same() -> None:
    options = ("plan", HIGH_RISE, "--drop-policy", "optimized", "--solver")
    mine, theirs = (printed_json(*options, solver) for solver in ("kkt", "cvxpy"))
    assert mine["utility"] == pytest.approx(theirs["utility"], rel=1e-6)
    assert (mine["plan"]["solver"], theirs["plan"]["solver"]) == ("kkt", "cvxpy")


def test_what_a_plan_cannot_do_is_said(tmp_path: Path) -> None:
    document = high_rise()
    document["planning"]["reserved_budgets"] = [{"role": "medic", "share": 0.1}]
    (medic,) = (each for each in document["subscribers"] if each["id"] == "medic")
    for subscription in medic["subscriptions"]:
        subscription["qos"] = 1
    file = write(tmp_path, document)
    shown = " ".join(run("plan", file).output.split())
    assert "switch fireground (fireground to hosts): role medic may reserve 10.0%" in shown
    assert "is served last" in shown
    document["planning"]["flows_per_subscriber"] = 1
    medic["subscriptions"][0]["qos"] = 0
    shown = " ".join(run("plan", write(tmp_path, document)).output.split())
    assert "shares its only flow with QoS 1 or 2: medic" in shown


def test_predict_shows_people_classes_or_subscriptions(tmp_path: Path) -> None:
    file = write(tmp_path, site())
    by_class, by_subscription = run("predict", file), run("predict", file, "--all")
    assert (by_class.exit_code, by_subscription.exit_code) == (0, 0)
    assert "By class, fan-out model" in by_class.output
    assert "smoke/#" not in by_class.output
    assert "By subscription, fan-out model" in by_subscription.output
    assert "smoke/#" in by_subscription.output
    assert "s1 2.4%" in by_class.output
    assert "first to saturate: s1 to hosts" in by_class.output


def test_predict_without_an_assignment_says_to_plan() -> None:
    result = run("predict", HIGH_RISE)
    assert result.exit_code == 2
    assert "has no assignment" in result.stderr
    assert "firedex plan builtin:high-rise" in result.stderr


def test_an_unstable_site_is_a_prediction_and_no_mistake(tmp_path: Path) -> None:
    document = site()
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 12_000.0
    file = write(tmp_path, document)
    (row,) = printed_json("predict", file)["subscriptions"]
    assert row["delay_mean_seconds"] is None
    assert row["reason"].startswith("s1 to hosts: offered 2 times")
    shown = run("predict", file)
    assert shown.exit_code == 0
    assert "s1 to hosts: offered 2 times what it carries" in shown.output


def test_plan_brings_the_high_rise_to_what_it_tolerates() -> None:
    prediction = printed_json("plan", HIGH_RISE, "--drop-policy", "optimized")
    loads = {s["id"]: s["utilization"] for s in prediction["switches"]}
    assert loads["fireground"] == pytest.approx(0.9, abs=1e-6)
    shown = run("plan", HIGH_RISE, "--drop-policy", "optimized")
    assert shown.exit_code == 0
    assert "fireground 90.0%" in shown.output
    assert "dual gap, kkt" in shown.output
    assert "32 subscriptions, 6 subscribers, 18 topics" in shown.output


@pytest.mark.parametrize("policy", ["flat", "linear", "exponential", "optimized"])
@pytest.mark.parametrize("qos", [1, 2])
def test_plan_never_drops_what_is_acknowledged(tmp_path: Path, policy: str, qos: int) -> None:
    document = high_rise()
    asked = {("command", "camera/floor3"), ("medic", "crew/#")}
    for subscriber in document["subscribers"]:
        for subscription in subscriber["subscriptions"]:
            if (subscriber["id"], subscription["filter"]) in asked:
                subscription["qos"] = qos
    prediction = printed_json("plan", write(tmp_path, document), "--drop-policy", policy)
    rows = {(row["subscriber"], row["filter"]): row for row in prediction["subscriptions"]}
    assert [(rows[key]["drop_rate"], rows[key]["success_rate"]) for key in asked] == [(0, 1)] * 2
    assert max(row["drop_rate"] for row in rows.values()) > 0
    loads = {s["id"]: s["utilization"] for s in prediction["switches"]}
    assert loads["fireground"] == pytest.approx(0.9, abs=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", HIGH_RISE, "--model", "magic"),
        ("plan", HIGH_RISE, "--drop-policy", "magic"),
        ("plan", HIGH_RISE, "--priority-policy", "magic"),
        ("plan", HIGH_RISE, "--split", "magic"),
        ("plan", HIGH_RISE, "--ranking", "magic"),
        ("plan", HIGH_RISE, "--solver", "magic"),
        ("plan", HIGH_RISE, "--seed", "-1"),
        ("plan", HIGH_RISE, "--seed", "99999999999999999999"),
        ("plan", HIGH_RISE, "--compare", "--write", "planned.yaml"),
        ("plan", HIGH_RISE, "--compare", "--drop-policy", "flat"),
        ("predict",),
        ("nonsense",),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example_and_json(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: firedex {command}" in result.output
    assert "--json" in result.output
    assert run(command, "-h").output == result.output


def test_help_names_every_command_and_the_version_is_told() -> None:
    assert all(command in run("--help").output for command in COMMANDS)
    assert run("--version").output == f"firedex, version {__version__}\n"


def test_every_option_has_a_twin_in_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, site())
    assert printed_json("predict", file)["model"] == "fan-out"
    twin = {"FIREDEX_PREDICT_MODEL": "independent"}
    assert printed_json("predict", file, env=twin)["model"] == "independent"
    assert printed_json("predict", file, "--model", "fan-out", env=twin)["model"] == "fan-out"
    flat = printed_json("plan", HIGH_RISE, env={"FIREDEX_PLAN_DROP_POLICY": "flat"})
    assert len({row["drop_rate"] for row in flat["subscriptions"]}) == 1


def test_the_papers_fifo_can_be_asked_for(tmp_path: Path) -> None:
    document = site()
    document["network"]["switches"][0]["bandwidth_bits_per_second"] = 112_000.0
    file = write(tmp_path, document)
    exact, paper = (
        printed_json("predict", file, "--fifo", fifo)["subscriptions"][0]["delay_mean_seconds"]
        for fifo in ("exact", "paper")
    )
    assert paper - exact == pytest.approx(0.5 * 0.5 / 70)  # 2 rather than 1.5 service times


def test_scenarios_lists_what_comes_along() -> None:
    assert any(line.split()[0] == HIGH_RISE for line in run("scenarios").output.splitlines())
    assert run("scenarios", "--show", HIGH_RISE).output.startswith("# A fire")
    assert HIGH_RISE in printed_json("scenarios")


@pytest.mark.parametrize("arguments", [("bench",), ("bench", "predict", "--all"), ("bench", "x")])
def test_bench_wants_one_name_or_all(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "predict" in result.stderr


@pytest.mark.parametrize(("seconds", "exit_code"), [(0.5, 0), (1.5, 1)])
def test_bench_exits_with_1_if_a_bar_is_missed(
    monkeypatch: pytest.MonkeyPatch, seconds: float, exit_code: int
) -> None:
    made = Comparison(
        what="a", left="l", left_value=seconds, right="r", right_value=1.0, unit="s", at_most=1.0
    )
    fast = replace(made, left_value=0.1)
    result_of = {name: made if name == "predict" else fast for name in benchmark_names()}
    for name, comparison in result_of.items():
        done = BenchmarkResult(name=name, comparisons=(comparison,))
        monkeypatch.setitem(OWN, name, lambda _report, done=done: done)
    assert {"plan", "predict", "simulate"} <= set(result_of)
    assert run("bench", "predict").exit_code == exit_code
    one = json.loads(run("bench", "predict", "--json").stdout)
    assert one["comparisons"][0]["kept"] is (exit_code == 0)
    result = run("bench", "--all", "--json")
    assert result.exit_code == exit_code
    both = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert both["predict"]["comparisons"][0]["kept"] is (exit_code == 0)
    assert both["plan"]["comparisons"][0]["kept"] is True


@pytest.mark.parametrize("name", ["smoke/[red]", "smoke/[/]", "smoke/[/x]"])
def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path, name: str) -> None:
    document = site(name=f"site {name}", topics=[topic(name)])
    document["publishers"] = [published("p0", {name: 1.0})]
    document["subscribers"] = [subscribed("command", name)]
    document["assignment"] = [assign("command", name)]
    document["planning"] = {"drop_policy": "flat"}
    file = write(tmp_path, document)
    for arguments in (("predict", file, "--all"), ("plan", file)):
        result = run(*arguments)
        assert result.exit_code == 0, result.exception
        assert name in result.output
