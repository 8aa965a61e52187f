"""Whatever a file holds, reading it ends in a scenario or a ScenarioFileError, soon."""

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
from small_site import Document, path_of_two_switches, site, write

from firedex.built_in_scenarios import built_in_scenarios
from firedex.scenario_file import (
    InvalidScenarioFile,
    ScenarioFileError,
    read_scenario,
)
from firedex.wire import InvalidValue, LogUtility, Scenario, from_plain


def full_site() -> Document:
    """A site in which every part of a scenario is there to be broken."""
    document = path_of_two_switches(buffer={"kind": "shared-push-out", "packets": 10})
    document["network"]["broker"] |= {
        "switch": "s1",
        "forwarded": [{"from_broker": "b2", "topic": "heat/1", "rate_per_second": 1.0}],
    }
    document["planning"] = {"rho_tolerance": 0.1}
    return document


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(data, dict | list):
        for key, below in data.items() if isinstance(data, dict) else enumerate(data):
            yield from places(below, (*path, key))


def with_at(path: tuple[Any, ...], wrong: object) -> Document:
    document = full_site()
    here: Any = document
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = copy.deepcopy(wrong)
    return document


def problems_in(document: object) -> list[str]:
    """What is wrong with a document; anything raised but InvalidValue fails the test."""
    try:
        from_plain(Scenario, document)
    except InvalidValue as error:
        return [str(problem) for problem in error.problems] or ["refused without a reason"]
    return []


WRONG: list[Any] = [
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


def test_the_full_site_is_right() -> None:
    assert from_plain(Scenario, full_site())


@pytest.mark.parametrize("path", list(places(full_site())), ids=lambda p: ".".join(map(str, p)))
def test_a_wrong_thing_in_any_place_is_refused_or_taken_but_never_crashes(
    path: tuple[Any, ...],
) -> None:
    for wrong in WRONG:
        assert all(": " in problem for problem in problems_in(with_at(path, wrong)))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
keys = (
    st.sampled_from(["name", "id", "topics", "topic", "filter", "utility", "kind", "points"])
    | st.sampled_from(["publishers", "publications", "subscribers", "subscriptions", "switch"])
    | st.sampled_from(["network", "switches", "links", "from", "to", "broker", "forwarded"])
    | st.sampled_from(["assignment", "subscriber", "flow", "priority", "drop_rate", "managed"])
)
anything = st.recursive(
    scalars, lambda of: st.lists(of, max_size=3) | st.dictionaries(keys | scalars, of, max_size=4)
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=anything)
def test_any_document_at_all_never_crashes(document: object) -> None:
    problems = problems_in(document)
    assert problems, "no such document is a scenario"
    assert all(": " in problem for problem in problems)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    path=st.sampled_from(list(places(full_site()))),
    other=st.sampled_from(list(places(full_site()))),
    wrong=anything,
)
def test_any_two_wrong_things_together_never_crash(
    path: tuple[Any, ...], other: tuple[Any, ...], wrong: object
) -> None:
    document = with_at(path, wrong)
    here: Any = document
    try:
        for step in other[:-1]:
            here = here[step]
        here[other[-1]] = wrong
    except (KeyError, IndexError, TypeError):
        pass  # the first wrong thing left no room for the second
    assert all(": " in problem for problem in problems_in(document))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "a scenario is a mapping"),
        ("# nothing but a remark\n", 1, "a scenario is a mapping"),
        ("- a\n- b\n", 1, "a scenario is a mapping"),
        ("just text", 1, "a scenario is a mapping"),
        ("3", 1, "a scenario is a mapping"),
        ("null", 1, "a scenario is a mapping"),
        ("name: [a\nb: c\n", 2, "not valid YAML"),
        ("name: a\n  b: c\n", 2, "not valid YAML"),
        ("name: 'a\n", 2, "not valid YAML"),
        ("name: a\ntopics:\n\t- x\n", 3, "not valid YAML"),
        ("name: *nobody\n", 1, "not valid YAML.*alias"),
        ("name: a\n---\nname: b\n", 2, "another document"),
        ("name: !!python/object:os.system x\n", 1, "not valid YAML"),
        ("? [a]\n: b\n", 1, "not valid YAML"),
        ("<<: 3\n", 1, "not valid YAML"),
    ],
)
def test_what_is_no_scenario_at_all_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    with pytest.raises(InvalidScenarioFile, match=message) as caught:
        read_scenario(write(tmp_path, text))
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
def test_odd_yaml_is_refused_and_never_crashes(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScenarioFileError):
        read_scenario(write(tmp_path, text))


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
def test_links_of_odd_shapes_beside_an_assignment(tmp_path: Path, links: object) -> None:
    document = path_of_two_switches()
    document["network"]["links"] = links
    with pytest.raises(InvalidScenarioFile, match="links"):
        read_scenario(write(tmp_path, document))


def in_a_process_of_its_own(file: str, seconds: int) -> str:
    """Read a file where neither a crash nor endless memory can hurt; what came of it."""
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from firedex.scenario_file import ScenarioFileError, read_scenario\n"
        "try: read_scenario(sys.argv[1])\n"
        "except ScenarioFileError as error: print('refused:', error)\n"
    )
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code, file],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"still reading after {seconds} s"
    return ran.stdout or f"exit code {ran.returncode}: {ran.stderr[-200:]}"


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_deep_nesting_is_refused(tmp_path: Path, depth: int) -> None:
    file = write(tmp_path, "name: " + "[" * depth + "]" * depth)
    assert in_a_process_of_its_own(file, 20).startswith("refused:")


def test_an_alias_bomb_is_refused_soon_and_in_little_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    file = write(tmp_path, "\n".join(lines))
    assert in_a_process_of_its_own(file, 10).startswith("refused:")


def test_anchors_and_merged_keys_that_save_typing_are_welcome(tmp_path: Path) -> None:
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
    made = read_scenario(write(tmp_path, text)).subscribers
    assert [subscriber.id for subscriber in made] == ["a", "b", "c"]
    assert made[1].subscriptions == made[0].subscriptions
    assert made[2].subscriptions[0].utility == LogUtility(weight=5.0)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioFileError, match=r"absent\.yaml.*No such file"):
        read_scenario(str(tmp_path / "absent.yaml"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioFileError, match="directory"):
        read_scenario(str(tmp_path))


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "latin1.yaml"
    file.write_bytes("name: Höhenhaus\n".encode("latin-1"))
    with pytest.raises(ScenarioFileError, match=r"latin1\.yaml.*not UTF-8"):
        read_scenario(str(file))


def test_an_unknown_built_in_scenario_is_told_which_there_are() -> None:
    with pytest.raises(ScenarioFileError, match=r"'no-such'; there are .*high-rise"):
        read_scenario("builtin:no-such")


@pytest.mark.parametrize("name", built_in_scenarios())
def test_every_built_in_scenario_is_right(name: str) -> None:
    assert read_scenario(f"builtin:{name}").name.startswith(name)
    assert built_in_scenarios()[name].about


def test_a_drawn_scenario_takes_parameters() -> None:
    drawn = read_scenario("builtin:table-2?seed=7&subscribers=3&deadline_seconds=0.5&shared=false")
    assert len(drawn.subscribers) == 3
    assert len({subscriber.switch for subscriber in drawn.subscribers}) == 3
    assert {s.deadline_seconds for s in drawn.subscribers[0].subscriptions} == {0.5}
    assert read_scenario("builtin:table-2?seed=7") == read_scenario("builtin:table-2?seed=7")
    assert read_scenario("builtin:table-2?seed=7") != read_scenario("builtin:table-2?seed=8")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("table-2?seeds=1", "seeds: unknown key 'seeds'; did you mean 'seed'"),
        ("table-2?seed=-1", "seed: must be greater than or equal to 0"),
        ("table-2?seed=x&subscribers=0", "seed: must be a valid integer.*subscribers: must be"),
        ("table-2?deadline_seconds=0", "deadline_seconds: must be greater than 0"),
        ("table-2?shared=perhaps", "shared: must be a valid boolean"),
        ("high-rise?seed=1", "builtin:high-rise takes no parameters"),
    ],
)
def test_wrong_parameters_are_refused_by_name(query: str, said: str) -> None:
    with pytest.raises(ScenarioFileError, match=said):
        read_scenario(f"builtin:{query}")


def test_the_text_of_a_drawn_scenario_is_that_scenario(tmp_path: Path) -> None:
    file = tmp_path / "drawn.yaml"
    file.write_text(built_in_scenarios()["table-2"].text, "utf-8")
    assert read_scenario(str(file)) == read_scenario("builtin:table-2")
