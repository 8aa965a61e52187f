"""Reading of any file returns a scenario or raises ScenarioFileError within a short time."""

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firedex.scenario import (
    InvalidScenarioFile,
    ScenarioFileError,
    built_in_scenarios,
    read_scenario,
)
from firedex.wire import InvalidValue, LogUtility, Scenario, from_plain
from tests.support.small_site import Document, path_of_two_switches, site, write_scenario

pytestmark = pytest.mark.slow


def full_site() -> Document:
    """Return a site with every part of a scenario, for tests that replace a part."""
    document = path_of_two_switches(buffer={"kind": "shared-push-out", "packets": 10})
    document["network"]["broker"] |= {
        "switch": "s1",
        "forwarded": [{"from_broker": "b2", "topic": "heat/1", "rate_per_second": 1.0}],
    }
    document["planning"] = {"rho_tolerance": 0.1}
    return document


def all_paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(data, dict | list):
        for key, below in data.items() if isinstance(data, dict) else enumerate(data):
            yield from all_paths(below, (*path, key))


def replace_at(path: tuple[Any, ...], wrong: object) -> Document:
    document = full_site()
    here: Any = document
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = copy.deepcopy(wrong)
    return document


def validation_problems(document: object) -> list[str]:
    """Return the problems of a document; any exception except InvalidValue fails the test."""
    try:
        from_plain(Scenario, document)
    except InvalidValue as error:
        return [str(problem) for problem in error.problems] or ["rejected without a reason"]
    return []


WRONG_VALUES: list[Any] = [
    None,
    True,
    3,
    -1,
    10**400,
    0.5,
    "",
    "x",
    "$share/x",
    [],
    [None],
    ["x"],
    [[]],
    [{}],
    {},
    {"x": 1},
    {1: 2},
    {None: None},
]


def test_full_site_is_valid() -> None:
    assert from_plain(Scenario, full_site())


@pytest.mark.parametrize("path", list(all_paths(full_site())), ids=lambda p: ".".join(map(str, p)))
def test_wrong_value_anywhere_does_not_crash(
    path: tuple[Any, ...],
) -> None:
    for wrong in WRONG_VALUES:
        assert all(": " in problem for problem in validation_problems(replace_at(path, wrong)))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
keys = (
    st.sampled_from(["name", "id", "topics", "topic", "filter", "utility", "kind", "points"])
    | st.sampled_from(["publishers", "publications", "subscribers", "subscriptions", "switch"])
    | st.sampled_from(["network", "switches", "links", "from", "to", "broker", "forwarded"])
    | st.sampled_from(["assignment", "subscriber", "flow", "priority", "drop_rate", "managed"])
)
any_document = st.recursive(
    scalars,
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(keys | scalars, children, max_size=4)
    ),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=any_document)
def test_arbitrary_document_is_rejected(document: object) -> None:
    problems = validation_problems(document)
    assert problems, "an arbitrary document must not be a valid scenario"
    assert all(": " in problem for problem in problems)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    path=st.sampled_from(list(all_paths(full_site()))),
    other=st.sampled_from(list(all_paths(full_site()))),
    wrong=any_document,
)
def test_two_wrong_values_do_not_crash(
    path: tuple[Any, ...], other: tuple[Any, ...], wrong: object
) -> None:
    document = replace_at(path, wrong)
    here: Any = document
    try:
        for step in other[:-1]:
            here = here[step]
        here[other[-1]] = wrong
    except (KeyError, IndexError, TypeError):
        pass  # the second path does not exist after the first change
    assert all(": " in problem for problem in validation_problems(document))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "must be a mapping with the keys of a scenario"),
        ("# only a comment\n", 1, "must be a mapping with the keys of a scenario"),
        ("- a\n- b\n", 1, "must be a mapping with the keys of a scenario"),
        ("just text", 1, "must be a mapping with the keys of a scenario"),
        ("3", 1, "must be a mapping with the keys of a scenario"),
        ("null", 1, "must be a mapping with the keys of a scenario"),
        ("name: [a\nb: c\n", 2, "not valid YAML"),
        ("name: a\n  b: c\n", 2, "not valid YAML"),
        ("name: 'a\n", 2, "not valid YAML"),
        ("name: a\ntopics:\n\t- x\n", 3, "not valid YAML"),
        ("name: *undefined\n", 1, "not valid YAML.*alias"),
        ("name: a\n---\nname: b\n", 2, "another document"),
        ("name: !!python/object:os.system x\n", 1, "not valid YAML"),
        ("? [a]\n: b\n", 1, "not valid YAML"),
        ("<<: 3\n", 1, "not valid YAML"),
    ],
)
def test_file_that_is_not_a_mapping_is_rejected_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    with pytest.raises(InvalidScenarioFile, match=message) as caught:
        read_scenario(write_scenario(tmp_path, text))
    assert [problem.line for problem in caught.value.problems] == [line]


@pytest.mark.parametrize(
    "text",
    [
        "name: \x01\n",
        "name: 2020-13-45\n",
        f"name: {'9' * 5000}\n",
        "name: !!bool maybe\n",
        "name: !!int ''\n",
        "name: !!float ''\n",
        "name: !!timestamp soon\n",
        "name: !!binary '#'\n",
        "name: !!set {a}\n",
        "name: !!omap [a: 1]\n",
        "name: !!pairs [a: 1]\n",
        "name: &a [*a]\n",
        "name: &a {b: *a}\n",
        "1: 2\n3: {4: 5}\n",
        "null: null\n",
        "name: .nan\ntopics: .inf\n",
    ],
)
def test_unusual_yaml_is_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScenarioFileError):
        read_scenario(write_scenario(tmp_path, text))


@pytest.mark.parametrize(
    "links",
    [
        [{"from": ["s1"], "to": "s2"}],
        [{"from": {}, "to": "s2"}],
        [{"to": "s2"}, {"from": "s1", "to": "s2"}, {"from": None, "to": "s1"}],
        [{"from": 1, "to": "s2"}, {"from": "s1", "to": "s2"}],
        ["s1", "s2"],
        "s1",
    ],
    ids=str,
)
def test_malformed_links_with_an_assignment_are_rejected(tmp_path: Path, links: object) -> None:
    document = path_of_two_switches()
    document["network"]["links"] = links
    with pytest.raises(InvalidScenarioFile, match="links"):
        read_scenario(write_scenario(tmp_path, document))


def read_in_subprocess(file: str, seconds: int) -> str:
    """Read a file in a process with limited memory and time, and return its output."""
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from firedex.scenario import ScenarioFileError, read_scenario\n"
        "try: read_scenario(sys.argv[1])\n"
        "except ScenarioFileError as error: print('rejected:', error)\n"
    )
    try:
        process = subprocess.run(
            [sys.executable, "-c", code, file],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"still reading after {seconds} s"
    return process.stdout or f"exit code {process.returncode}: {process.stderr[-200:]}"


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_deep_nesting_is_rejected(tmp_path: Path, depth: int) -> None:
    file = write_scenario(tmp_path, "name: " + "[" * depth + "]" * depth)
    assert read_in_subprocess(file, 20).startswith("rejected:")


def test_alias_bomb_is_rejected_with_little_time_and_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    file = write_scenario(tmp_path, "\n".join(lines))
    assert read_in_subprocess(file, 10).startswith("rejected:")


def test_anchors_and_merge_keys_are_accepted(tmp_path: Path) -> None:
    document = site(subscribers=[])
    del document["assignment"]
    text = yaml.safe_dump(document).replace("subscribers: []\n", "") + (
        "subscribers:\n"
        "  - &first\n"
        "    id: a\n"
        "    switch: s1\n"
        "    subscriptions: [{filter: smoke/#, utility: &much {kind: log, weight: 5.0}}]\n"
        "  - {<<: *first, id: b}\n"
        "  - {id: c, switch: s1, subscriptions: [{filter: heat/1, utility: *much}]}\n"
    )
    subscribers = read_scenario(write_scenario(tmp_path, text)).subscribers
    assert [subscriber.id for subscriber in subscribers] == ["a", "b", "c"]
    assert subscribers[1].subscriptions == subscribers[0].subscriptions
    assert subscribers[2].subscriptions[0].utility == LogUtility(weight=5.0)


def test_missing_file_is_named_in_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioFileError, match=r"absent\.yaml.*No such file"):
        read_scenario(str(tmp_path / "absent.yaml"))


def test_folder_instead_of_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ScenarioFileError, match="directory"):
        read_scenario(str(tmp_path))


def test_file_that_is_not_utf8_is_named_in_error(tmp_path: Path) -> None:
    file = tmp_path / "latin1.yaml"
    file.write_bytes("name: Höhenhaus\n".encode("latin-1"))
    with pytest.raises(ScenarioFileError, match=r"latin1\.yaml.*not UTF-8"):
        read_scenario(str(file))


def test_error_for_unknown_built_in_scenario_lists_known_ones() -> None:
    with pytest.raises(ScenarioFileError, match=r"'no-such'; known are .*high-rise"):
        read_scenario("builtin:no-such")


@pytest.mark.parametrize("name", built_in_scenarios())
def test_every_built_in_scenario_is_valid(name: str) -> None:
    assert read_scenario(f"builtin:{name}").name.startswith(name)
    assert built_in_scenarios()[name].description


def test_generated_scenario_accepts_parameters() -> None:
    scenario = read_scenario(
        "builtin:table-2?seed=7&subscribers=3&deadline_seconds=0.5&shared=false"
    )
    assert len(scenario.subscribers) == 3
    assert len({subscriber.switch for subscriber in scenario.subscribers}) == 3
    assert {s.deadline_seconds for s in scenario.subscribers[0].subscriptions} == {0.5}
    assert read_scenario("builtin:table-2?seed=7") == read_scenario("builtin:table-2?seed=7")
    assert read_scenario("builtin:table-2?seed=7") != read_scenario("builtin:table-2?seed=8")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("table-2?seeds=1", "seeds: unknown key 'seeds'; did you mean 'seed'"),
        ("table-2?seed=-1", "seed: must be greater than or equal to 0"),
        ("table-2?seed=x&subscribers=0", "seed: must be a valid integer.*subscribers: must be"),
        ("table-2?deadline_seconds=0", "deadline_seconds: must be greater than 0"),
        ("table-2?shared=perhaps", "shared: must be a valid boolean"),
        ("high-rise?seed=1", "builtin:high-rise takes no parameters"),
    ],
)
def test_invalid_parameter_is_rejected_with_its_name(query: str, message: str) -> None:
    with pytest.raises(ScenarioFileError, match=message):
        read_scenario(f"builtin:{query}")


def test_text_of_generated_scenario_equals_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(built_in_scenarios()["table-2"].text, "utf-8")
    assert read_scenario(str(file)) == read_scenario("builtin:table-2")
