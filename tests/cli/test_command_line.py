"""The ``firedex`` command line: output, exit codes and error messages."""

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click.testing import CliRunner, Result

from firedex import __version__
from firedex.cli import firedex
from firedex.cli.commands import check as check_command
from firedex.cli.group import COMMANDS as ENTRIES
from firedex.lab.benchmarks import BenchmarkResult, Report, benchmark_names
from firedex.lab.benchmarks import command as bench_command
from firedex.lab.benchmarks.result import Comparison
from firedex.wire import DropPolicy, Prediction, PriorityPolicy, from_json
from tests.support.small_site import (
    Document,
    assign,
    publisher_entry,
    site,
    subscriber_entry,
    topic,
    write_scenario,
)

pytestmark = pytest.mark.slow

HIGH_RISE = "builtin:high-rise"
COMMANDS = sorted(ENTRIES)
WITHOUT_JSON = {"controller", "gateway", "pub", "serve", "switch-agent"}
"""Commands without machine-readable output: servers, and ``pub``."""
GROUPS = {"certificates", "federation", "incident", "profiles", "spark", "tokens"}
"""Commands with subcommands, which have ``--json`` where they print results."""


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    runner = CliRunner()
    return runner.invoke(firedex, arguments, env=env, auto_envvar_prefix="FIREDEX")


def run_json(*arguments: str, env: dict[str, str] | None = None) -> Any:
    result = run(*arguments, "--json", env=env)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def high_rise() -> Document:
    text = (resources.files("firedex.scenario") / "builtin_files/high-rise.yaml").read_text("utf-8")
    document: Document = yaml.safe_load(text)
    return document


def test_check_accepts_a_valid_scenario(tmp_path: Path) -> None:
    file = write_scenario(tmp_path, site())
    result = run("check", file)
    assert result.exit_code == 0
    assert result.output.startswith(f"{file}: no problems\n")
    output = run_json("check", file)
    assert (output["valid"], output["problems"]) == (True, [])


def test_check_gives_advice_about_probable_mistakes(tmp_path: Path) -> None:
    document = site()
    document["topics"].append({"name": "unheard", "event_bytes": 5})
    document["subscribers"][0]["subscriptions"][0]["filter"] = "heet/+/rack"
    del document["assignment"]
    result = run("check", write_scenario(tmp_path, document))
    assert result.exit_code == 0
    assert "no publisher publishes 'unheard'" in result.output
    assert "'heet/+/rack'" in result.output
    assert "matches no topic" in result.output


@pytest.mark.parametrize("columns", ["60", "80"])
def test_narrow_terminal_cuts_off_no_number(columns: str) -> None:
    result = CliRunner(env={"COLUMNS": columns}).invoke(firedex, ["plan", HIGH_RISE, "--all"])
    assert result.exit_code == 0
    assert "…" not in result.output
    assert "p95" in result.output
    assert "missed" in result.output


def test_predict_reads_the_file_that_plan_writes(tmp_path: Path) -> None:
    file = tmp_path / "planned.yaml"
    planned = run_json("plan", HIGH_RISE, "--write", str(file))
    assert planned.pop("plan")["drop_policy"] == "deadline-aware"
    assert run_json("predict", str(file)) == planned


def test_flag_can_be_set_by_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIREDEX_PLAN_ALL", "1")
    result = CliRunner().invoke(firedex, ["plan", HIGH_RISE], auto_envvar_prefix="FIREDEX")
    assert "By subscription" in result.output


def test_check_lists_all_problems(tmp_path: Path) -> None:
    document = site(nmae="x")
    document["subscribers"][0]["switch"] = "s9"
    document["publishers"][0]["publications"][0]["rate_per_second"] = -1
    file = write_scenario(tmp_path, document)
    result = run("check", file)
    assert result.exit_code == 2
    assert f"{file}: 3 problems" in result.output
    for message in (
        "unknown key 'nmae'",
        "unknown switch 's9'",
        "rate_per_second: must be greater",
    ):
        assert message in result.output


def test_check_json_contains_line_path_and_message(tmp_path: Path) -> None:
    file = write_scenario(tmp_path, "name: x\ntopics: []\nnetwrk: {}\n")
    result = run("check", file, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 2
    assert report["valid"] is False
    unknown = next(p for p in report["problems"] if p["path"] == ["netwrk"])
    assert unknown == {
        "line": 3,
        "path": ["netwrk"],
        "message": "unknown key 'netwrk'; did you mean 'network'?",
    }


@pytest.mark.parametrize("command", ["check", "predict", "plan"])
def test_missing_file_exits_with_2(command: str) -> None:
    result = run(command, "absent.yaml")
    assert result.exit_code == 2
    assert "cannot read 'absent.yaml': No such file" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["predict", "plan"])
def test_invalid_file_exits_with_2(tmp_path: Path, command: str) -> None:
    result = run(command, write_scenario(tmp_path, site(nmae="x")))
    assert result.exit_code == 2
    assert "did you mean 'name'" in result.stderr


@pytest.mark.parametrize("command", ["check", "predict", "plan"])
def test_error_for_an_unknown_built_in_scenario_lists_all(command: str) -> None:
    result = run(command, "builtin:low-rise")
    assert result.exit_code == 2
    assert "high-rise" in result.stderr


def check_prediction_fields(prediction: Any) -> None:
    """Check that a prediction contains the documented fields."""
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


def test_predict_json_contains_the_documented_fields(tmp_path: Path) -> None:
    prediction = run_json("predict", write_scenario(tmp_path, site()))
    check_prediction_fields(prediction)
    assert prediction["subscriptions"][0]["success_rate"] == 1.0
    assert [switch["id"] for switch in prediction["switches"]] == ["s0", "s1"]


def test_plan_json_contains_the_documented_fields() -> None:
    prediction = run_json("plan", HIGH_RISE)
    report = prediction.pop("plan")
    check_prediction_fields(prediction)
    assert len(prediction["subscriptions"]) == 32
    assert report["solver"] == "kkt"
    assert report["utility_gap"] < 1e-6
    assert len(report["unmet_deadlines"]) == prediction["deadlines_missed"]


def test_plan_output_is_reproducible() -> None:
    first, second = (run("plan", HIGH_RISE, "--json").stdout for _ in range(2))
    assert first == second


def test_compare_shows_every_policy_and_its_classes() -> None:
    result = run("plan", HIGH_RISE, "--compare")
    assert result.exit_code == 0
    for policy in (*get_args(PriorityPolicy), *get_args(DropPolicy)):
        assert policy in result.output
    compared = run_json("plan", HIGH_RISE, "--compare")["policies"]
    pairs = [(entry["priority_policy"], entry["drop_policy"]) for entry in compared]
    assert len(pairs) == len(set(pairs)) == 9
    best = max(compared, key=lambda entry: entry["timely_utility"])
    assert best["drop_policy"] in ("optimized", "deadline-aware")
    for entry in compared:
        assert entry["problem"] is None
        assert 0 < entry["achieved_utility_rate"] <= 1
        assert entry["classes"][0]["priority"] == 0


def test_compare_reports_infeasible_policies(tmp_path: Path) -> None:
    document = high_rise()
    document["planning"]["priorities"] = 1
    file = write_scenario(tmp_path, document)
    result = run("plan", file, "--compare")
    assert result.exit_code == 0
    assert "'linear' cannot reduce the load of 'fireground to hosts'" in " ".join(
        result.output.split()
    )
    compared = run_json("plan", file, "--compare")["policies"]
    problems = {entry["drop_policy"]: entry["problem"] for entry in compared}
    assert problems["linear"]
    assert problems["optimized"] is None


def test_plan_counts_subscriptions_moved_since_the_previous_plan(tmp_path: Path) -> None:
    planned = tmp_path / "planned.yaml"
    first = run_json("plan", HIGH_RISE, "--write", str(planned))
    assert first["plan"]["moved_subscriptions"] is None
    second = run_json("plan", HIGH_RISE, "--previous", str(planned))
    assert second["plan"]["moved_subscriptions"] == 0
    result = run("plan", HIGH_RISE, "--previous", str(planned), "--priority-policy", "random")
    assert "moved since the previous plan: " in result.output
    without_assignment = run("plan", HIGH_RISE, "--previous", HIGH_RISE)
    assert without_assignment.exit_code == 2
    assert "--previous: builtin:high-rise has no assignment" in without_assignment.stderr


def test_both_solvers_find_the_same_utility() -> None:
    options = ("plan", HIGH_RISE, "--drop-policy", "optimized", "--solver")
    kkt, cvxpy = (run_json(*options, solver) for solver in ("kkt", "cvxpy"))
    assert kkt["utility"] == pytest.approx(cvxpy["utility"], rel=1e-6)
    assert (kkt["plan"]["solver"], cvxpy["plan"]["solver"]) == ("kkt", "cvxpy")


def test_plan_reports_its_shortcomings(tmp_path: Path) -> None:
    document = high_rise()
    document["planning"]["reserved_budgets"] = [{"role": "medic", "share": 0.1}]
    (medic,) = (each for each in document["subscribers"] if each["id"] == "medic")
    for subscription in medic["subscriptions"]:
        subscription["qos"] = 1
    file = write_scenario(tmp_path, document)
    output = " ".join(run("plan", file).output.split())
    assert "switch fireground (fireground to hosts): role medic requested" in output
    assert "but 10.0% can be reserved" in output
    assert "has the lowest priority" in output
    document["planning"]["flows_per_subscriber"] = 1
    medic["subscriptions"][0]["qos"] = 0
    output = " ".join(run("plan", write_scenario(tmp_path, document)).output.split())
    assert "QoS 0 shares the only flow with QoS 1 or 2: medic" in output


def test_predict_shows_classes_or_subscriptions(tmp_path: Path) -> None:
    file = write_scenario(tmp_path, site())
    by_class, by_subscription = run("predict", file), run("predict", file, "--all")
    assert (by_class.exit_code, by_subscription.exit_code) == (0, 0)
    assert "By class, fan-out model" in by_class.output
    assert "smoke/#" not in by_class.output
    assert "By subscription, fan-out model" in by_subscription.output
    assert "smoke/#" in by_subscription.output
    assert "s1 2.4%" in by_class.output
    assert "first to saturate: s1 to hosts" in by_class.output


def test_predict_without_assignment_suggests_plan() -> None:
    result = run("predict", HIGH_RISE)
    assert result.exit_code == 2
    assert "has no assignment" in result.stderr
    assert "firedex plan builtin:high-rise" in result.stderr


def test_predict_reports_an_unstable_queue_without_failing(tmp_path: Path) -> None:
    document = site()
    document["network"]["switches"][1]["bandwidth_bits_per_second"] = 12_000.0
    file = write_scenario(tmp_path, document)
    (row,) = run_json("predict", file)["subscriptions"]
    assert row["delay_mean_seconds"] is None
    assert row["reason"].startswith("s1 to hosts: the offered load is 2 times")
    result = run("predict", file)
    assert result.exit_code == 0
    assert "s1 to hosts: the offered load is 2 times the capacity" in result.output


def test_plan_reduces_the_load_to_the_maximum_utilization() -> None:
    prediction = run_json("plan", HIGH_RISE, "--drop-policy", "optimized")
    loads = {s["id"]: s["utilization"] for s in prediction["switches"]}
    assert loads["fireground"] == pytest.approx(0.9, abs=1e-6)
    result = run("plan", HIGH_RISE, "--drop-policy", "optimized")
    assert result.exit_code == 0
    assert "fireground 90.0%" in result.output
    assert "dual gap, kkt" in result.output
    assert "32 subscriptions, 6 subscribers, 18 topics" in result.output


@pytest.mark.parametrize("policy", ["flat", "linear", "exponential", "optimized"])
@pytest.mark.parametrize("qos", [1, 2])
def test_plan_never_drops_qos_1_and_2_events(tmp_path: Path, policy: str, qos: int) -> None:
    document = high_rise()
    guaranteed = {("command", "camera/floor3"), ("medic", "crew/#")}
    for subscriber in document["subscribers"]:
        for subscription in subscriber["subscriptions"]:
            if (subscriber["id"], subscription["filter"]) in guaranteed:
                subscription["qos"] = qos
    prediction = run_json("plan", write_scenario(tmp_path, document), "--drop-policy", policy)
    rows = {(row["subscriber"], row["filter"]): row for row in prediction["subscriptions"]}
    assert [(rows[key]["drop_rate"], rows[key]["success_rate"]) for key in guaranteed] == [
        (0, 1)
    ] * 2
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
def test_help_of_every_command_has_an_example_and_a_json_option(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: firedex {command}" in result.output
    assert ("--json" in result.output) == (command not in WITHOUT_JSON | GROUPS)
    assert run(command, "-h").output == result.output


def test_help_option_has_both_names_after_a_direct_call() -> None:
    assert CliRunner().invoke(check_command, ["--help"]).exit_code == 0
    assert "-h, --help" in run("check", "-h").output


def test_help_lists_every_command_and_version_option_prints_the_version() -> None:
    assert all(command in run("--help").output for command in COMMANDS)
    assert run("--version").output == f"firedex, version {__version__}\n"


def test_option_can_be_set_by_an_environment_variable(tmp_path: Path) -> None:
    file = write_scenario(tmp_path, site())
    assert run_json("predict", file)["model"] == "fan-out"
    environment = {"FIREDEX_PREDICT_MODEL": "independent"}
    assert run_json("predict", file, env=environment)["model"] == "independent"
    assert run_json("predict", file, "--model", "fan-out", env=environment)["model"] == "fan-out"
    flat = run_json("plan", HIGH_RISE, env={"FIREDEX_PLAN_DROP_POLICY": "flat"})
    assert len({row["drop_rate"] for row in flat["subscriptions"]}) == 1


def test_fifo_option_selects_the_model_of_the_paper(tmp_path: Path) -> None:
    document = site()
    document["network"]["switches"][0]["bandwidth_bits_per_second"] = 112_000.0
    file = write_scenario(tmp_path, document)
    exact, paper = (
        run_json("predict", file, "--fifo", fifo)["subscriptions"][0]["delay_mean_seconds"]
        for fifo in ("exact", "paper")
    )
    assert paper - exact == pytest.approx(0.5 * 0.5 / 70)  # 2 rather than 1.5 service times


def test_scenarios_lists_and_shows_built_in_scenarios() -> None:
    assert any(line.split()[0] == HIGH_RISE for line in run("scenarios").output.splitlines())
    assert run("scenarios", "--show", HIGH_RISE).output.startswith("# A fire")
    assert HIGH_RISE in run_json("scenarios")


@pytest.mark.parametrize("arguments", [("bench",), ("bench", "predict", "--all"), ("bench", "x")])
def test_bench_requires_one_name_or_all(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "predict" in result.stderr


@pytest.mark.parametrize(("seconds", "exit_code"), [(0.5, 0), (1.5, 1)])
def test_bench_exits_with_1_if_a_limit_is_exceeded(
    monkeypatch: pytest.MonkeyPatch, seconds: float, exit_code: int
) -> None:
    comparison = Comparison(
        what="a", left="l", left_value=seconds, right="r", right_value=1.0, unit="s", at_most=1.0
    )
    passing = replace(comparison, left_value=0.1)
    comparison_by_name = {
        name: comparison if name == "predict" else passing for name in benchmark_names()
    }

    def run_benchmark(name: str, _report: Report) -> BenchmarkResult:
        return BenchmarkResult(name=name, comparisons=(comparison_by_name[name],))

    monkeypatch.setattr(bench_command, "run_benchmark", run_benchmark)
    assert {"plan", "predict", "simulate"} <= set(comparison_by_name)
    assert run("bench", "predict").exit_code == exit_code
    single = json.loads(run("bench", "predict", "--json").stdout)
    assert single["comparisons"][0]["kept"] is (exit_code == 0)
    result = run("bench", "--all", "--json")
    assert result.exit_code == exit_code
    all_results = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert all_results["predict"]["comparisons"][0]["kept"] is (exit_code == 0)
    assert all_results["plan"]["comparisons"][0]["kept"] is True


@pytest.mark.parametrize("name", ["smoke/[red]", "smoke/[/]", "smoke/[/x]"])
def test_names_with_brackets_are_printed_unchanged(tmp_path: Path, name: str) -> None:
    document = site(name=f"site {name}", topics=[topic(name)])
    document["publishers"] = [publisher_entry("p0", {name: 1.0})]
    document["subscribers"] = [subscriber_entry("command", name)]
    document["assignment"] = [assign("command", name)]
    document["planning"] = {"drop_policy": "flat"}
    file = write_scenario(tmp_path, document)
    for arguments in (("predict", file, "--all"), ("plan", file)):
        result = run(*arguments)
        assert result.exit_code == 0, result.exception
        assert name in result.output
