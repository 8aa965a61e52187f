"""Mistakes in a scenario file are reported with line, path and message.

Each case changes the site below; the line that must be reported is marked ``# here``.
"""

import re
from pathlib import Path

import pytest

from firedex.scenario import InvalidScenarioFile, read_scenario
from tests.support.small_site import write_scenario

SITE = """\
name: high-rise
transport: udp
topics:
  - name: smoke/1
    event_bytes: 51
  - {name: heat/1, event_bytes: 51}
publishers:
  - id: p0
    switch: s0
    publications:
      - {topic: smoke/1, rate_per_second: 10}
      - {topic: heat/1, rate_per_second: 10}
subscribers:
  - id: command
    switch: s1
    subscriptions:
      - filter: smoke/#
        utility: {kind: log, weight: 1.0}
      - {filter: heat/1, utility: {kind: linear, weight: 1.0}}
network:
  switches:
    - {id: s0, managed: false, bandwidth_bits_per_second: 100000000}
    - id: s1
      bandwidth_bits_per_second: 1000000
      priorities: 4
  links: []
  broker: {id: b1}
planning: {rho_tolerance: 0.1}
assignment:
  - {subscriber: command, filter: smoke/#, flow: 0, priority: 0}
  - {subscriber: command, filter: heat/1, flow: 1, priority: 1}
"""

FILTER, FILTER_PATH = "filter: smoke/#\n", "subscribers[0].subscriptions[0].filter"
LOG, UTILITY_PATH = "utility: {kind: log, weight: 1.0}\n", "subscribers[0].subscriptions[0].utility"
FIRST = "- {subscriber: command, filter: smoke/#, flow: 0, priority: 0}\n"
SECOND = "- {subscriber: command, filter: heat/1, flow: 1, priority: 1}\n"
RATE = "- {topic: smoke/1, rate_per_second: 10}\n"


def replace_in_site(old: str, new: str) -> str:
    assert SITE.count(old) == 1, f"{old!r} occurs {SITE.count(old)} times"
    return SITE.replace(old, new)


def read_problems(tmp_path: Path, text: str) -> list[tuple[int | None, str, str]]:
    """Return line, path and message of every problem of a file."""
    with pytest.raises(InvalidScenarioFile) as caught:
        read_scenario(write_scenario(tmp_path, text))
    problems = []
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)
        path, _, message = str(problem).removeprefix(f"line {problem.line}: ").partition(": ")
        problems.append((problem.line, path, message))
    return problems


def test_unchanged_site_is_valid(tmp_path: Path) -> None:
    assert read_scenario(write_scenario(tmp_path, SITE)).name == "high-rise"


CASES = {
    "unknown key on top": (
        "planning: {", "planing: {", "planing", "did you mean 'planning'"),
    "unknown key of a topic": (
        "event_bytes: 51\n  -", "event_byte: 51 # here\n    event_bytes: 51\n  -",
        "topics[0].event_byte", "did you mean 'event_bytes'"),
    "unknown key of a publication": (
        RATE, "- {topic: smoke/1, rate_per_second: 1, arival: poisson} # here\n",
        "publishers[0].publications[0].arival", "did you mean 'arrivals'"),
    "unknown key of a utility": (
        LOG, "utility: {kind: log, weight: 1.0, wait: 2} # here\n",
        f"{UTILITY_PATH}.wait", "unknown key 'wait'"),
    "unknown key of a switch": (
        "priorities: 4", "priority: 4 # here",
        "network.switches[1].priority", "did you mean 'priorities'"),
    "a link's python name": (
        "links: []", "links: [{from_: s0, to: s1}] # here",
        "network.links[0].from_", "unknown key 'from_'"),
    "missing key": (
        RATE, "- {topic: smoke/1} # here\n",
        "publishers[0].publications[0].rate_per_second", "is required"),
    "negative rate": (
        RATE, "- {topic: smoke/1, rate_per_second: -1} # here\n",
        "publishers[0].publications[0].rate_per_second", "greater than or equal to 0, not -1"),
    "rate that is text": (
        RATE, "- {topic: smoke/1, rate_per_second: '10'} # here\n",
        "publishers[0].publications[0].rate_per_second", "'10' is a string in YAML"),
    "negative bandwidth": (
        "bandwidth_bits_per_second: 1000000\n", "bandwidth_bits_per_second: -5 # here\n",
        "network.switches[1].bandwidth_bits_per_second", "greater than 0, not -5"),
    "no bandwidth": (
        "bandwidth_bits_per_second: 1000000\n", "bandwidth_bits_per_second: 0 # here\n",
        "network.switches[1].bandwidth_bits_per_second", "greater than 0"),
    "negative size": (
        "event_bytes: 51\n  -", "event_bytes: -1 # here\n  -",
        "topics[0].event_bytes", "greater than or equal to 0"),
    "unknown published topic": (
        RATE, "- {topic: smoke/2, rate_per_second: 1} # here\n",
        "publishers[0].publications[0].topic", "'smoke/2'; known are smoke/1, heat/1"),
    "unknown subscribed topic": (
        FILTER, "filter: smoke/9 # here\n", FILTER_PATH, "'smoke/9'; known are smoke/1, heat/1"),
    "topic published twice": (
        RATE, RATE + "      - {topic: smoke/1, rate_per_second: 1} # here\n",
        "publishers[0].publications[1].topic", "the sum of the rates"),
    "unknown switch of a publisher": (
        "switch: s0", "switch: s9 # here", "publishers[0].switch", "'s9'; known are s0, s1"),
    "unknown switch of a subscriber": (
        "switch: s1", "switch: s9 # here", "subscribers[0].switch", "'s9'; known are s0, s1"),
    "unknown switch of the broker": (
        "broker: {id: b1}", "broker: {id: b1, switch: s9} # here",
        "network.broker.switch", "'s9'; known are s0, s1"),
    "link to an unknown switch": (
        "links: []", "links: [{from: s1, to: s9}] # here",
        "network.links[0].to", "'s9'; known are s0, s1"),
    "link from an unknown switch": (
        "links: []", "links: [{from: s9, to: s1}] # here",
        "network.links[0].from", "'s9'; known are s0, s1"),
    "wildcard in a topic name": (
        "name: smoke/1\n", "name: smoke/+ # here\n",
        "topics[0].name", "in subscription filters only"),
    "hash in the middle of a filter": (
        FILTER, "filter: smoke/#/1 # here\n", FILTER_PATH, "complete last level"),
    "plus within a level": (
        FILTER, "filter: smo+/1 # here\n", FILTER_PATH, "must be a complete level"),
    "shared subscription": (
        FILTER, "filter: $share/crew/smoke/# # here\n", FILTER_PATH, r"without '\$share/<group>/'"),
    "utility of an unknown kind": (
        LOG, "utility: {kind: cubic, weight: 1.0} # here\n",
        UTILITY_PATH, "'log', 'linear', 'capped', 'power', 'piecewise-linear'"),
    "utility of no kind": (
        LOG, "utility: {weight: 1.0} # here\n", UTILITY_PATH, "needs a 'kind': one of log, linear"),
    "utility of negative weight": (
        LOG, "utility: {kind: log, weight: -1.0} # here\n",
        f"{UTILITY_PATH}.weight", "greater than or equal to 0"),
    "decreasing utility": (
        LOG, "utility: {kind: piecewise-linear, weight: 1, points: [[0, 1], [1, 0]]} # here\n",
        f"{UTILITY_PATH}.points", "not increasing: utility must not decrease"),
    "utility that is not concave": (
        LOG,
        LOG.replace("log, weight: 1.0", "piecewise-linear, weight: 1, "
                    "points: [[0, 0], [0.5, 0.1], [1, 1]]").replace("\n", " # here\n"),
        f"{UTILITY_PATH}.points", "not concave: the slope between points must not increase"),
    "drop rate above 1": (
        SECOND, SECOND.replace("}", ", drop_rate: 1.1} # here"),
        "assignment[1].drop_rate", "less than or equal to 1, not 1.1"),
    "drop rate below 0": (
        SECOND, SECOND.replace("}", ", drop_rate: -0.1} # here"),
        "assignment[1].drop_rate", "greater than or equal to 0, not -0.1"),
    "event larger than a datagram": (
        "event_bytes: 51\n  -", "event_bytes: 1464 # here\n  -",
        "topics[0].event_bytes", "the maximum is 1463: make events smaller, or use"),
    "topic named twice": (
        "{name: heat/1, event_bytes: 51}\n", "{name: heat/1, event_bytes: 51}\n"
        "  - {name: smoke/1, event_bytes: 60} # here\n",
        "topics[2].name", "'smoke/1' is already used above"),
    "switch named twice": (
        "    - id: s1\n", "    - {id: s0, bandwidth_bits_per_second: 5} # here\n    - id: s1\n",
        "network.switches[1].id", "'s0' is already used above"),
    "publisher named twice": (
        "subscribers:\n", "  - {id: p0, switch: s0} # here\nsubscribers:\n",
        "publishers[1].id", "'p0' is already used above"),
    "subscriber named twice": (
        "network:\n", "  - {id: command, switch: s1} # here\nnetwork:\n",
        "subscribers[1].id", "'command' is already used above"),
    "filter subscribed to twice": (
        "network:\n",
        "      - {filter: heat/1, utility: {kind: log, weight: 1}} # here\nnetwork:\n",
        "subscribers[0].subscriptions[2].filter", "'heat/1' is already subscribed to above"),
    "key given twice": (
        "transport: udp\n", "transport: udp\ntransport: tcp # here\n",
        "transport", "is given twice"),
    "assignment to an unknown subscriber": (
        SECOND, SECOND + "  - {subscriber: crew, filter: heat/1, flow: 0, priority: 0} # here\n",
        "assignment[2].subscriber", "unknown subscriber 'crew'; known are command"),
    "assignment of an unknown filter": (
        SECOND, SECOND + "  - {subscriber: command, filter: heat/2, flow: 2, priority: 0} # here\n",
        "assignment[2].filter", "'command' has no subscription to 'heat/2'"),
    "assigned twice": (
        SECOND, SECOND + "  - {subscriber: command, filter: heat/1, flow: 1, priority: 1} # here\n",
        "assignment[2].filter", "already assigned above"),
    "not assigned": (
        "assignment:\n  " + FIRST, "assignment: # here\n  ",
        "assignment", "'smoke/#' of 'command' is not assigned; assign every subscription"),
    "flow of two priorities": (
        SECOND, SECOND.replace("flow: 1", "flow: 0").replace("}", "} # here"),
        "assignment[1]", r"flow 0 of 'command' must have one priority.*assignment\[0\] has others"),
    "flow of two drop rates": (
        SECOND,
        SECOND.replace("flow: 1, priority: 1}", "flow: 0, priority: 0, drop_rate: 0.5} # here"),
        "assignment[1]", "one priority, drop rate and enforcement point"),
    "class that the switch does not have": (
        SECOND, SECOND.replace("priority: 1", "priority: 4").replace("}", "} # here"),
        "assignment[1].priority", "class 4 does not exist.* have 4 classes, numbered 0 to 3"),
    "unknown policy": (
        "{rho_tolerance: 0.1}", "{drop_policy: most} # here",
        "planning.drop_policy", "'none', 'flat', 'linear', 'exponential', 'optimized'"),
    "tolerance of 1": (
        "{rho_tolerance: 0.1}", "{rho_tolerance: 1} # here",
        "planning.rho_tolerance", "less than 1"),
    "identifier with a space": (
        "id: command", "id: incident command # here", "subscribers[0].id", "not an identifier"),
    "error rate of 1": (
        "priorities: 4", "error_rate: 1.0 # here", "network.switches[1].error_rate", "less than 1"),
    "percentile of 1": (
        FILTER, "filter: smoke/#\n        deadline_percentile: 1.0 # here\n",
        "subscribers[0].subscriptions[0].deadline_percentile", "less than 1"),
    "unknown QoS": (
        FILTER, "filter: smoke/#\n        qos: 3 # here\n",
        "subscribers[0].subscriptions[0].qos", "less than or equal to 2"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "path", "message"), CASES.values(), ids=CASES)
def test_mistake_is_reported_with_line_path_and_message(
    tmp_path: Path, old: str, new: str, path: str, message: str
) -> None:
    text = replace_in_site(old, new)
    marked = [n for n, line in enumerate(text.splitlines(), 1) if "# here" in line]
    line = marked[0] if marked else text[: text.index(new)].count("\n") + 1
    problems = read_problems(tmp_path, text)
    assert (line, path) in [(at, location) for at, location, _ in problems]
    text_of_messages = " ".join(
        message_text for at, location, message_text in problems if (at, location) == (line, path)
    )
    assert re.search(message, text_of_messages), text_of_messages


SINGLE_PROBLEM_CASES = [
    "unknown key on top",
    "unknown key of a topic",
    "negative rate",
    "unknown switch of a publisher",
    "event larger than a datagram",
    "key given twice",
    "assigned twice",
    "not assigned",
    "flow of two priorities",
    "class that the switch does not have",
    "utility of an unknown kind",
]


@pytest.mark.parametrize("case", SINGLE_PROBLEM_CASES)
def test_one_mistake_is_reported_once(tmp_path: Path, case: str) -> None:
    old, new, _, _ = CASES[case]
    assert len(read_problems(tmp_path, replace_in_site(old, new))) == 1
