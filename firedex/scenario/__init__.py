"""Scenario files: reading, checking, and the scenarios that ship with FireDeX.

Owns the YAML format: where a mistake is in a file, and the built-in scenarios. What is valid is
defined in ``firedex.wire``. Must not know models (except to match topics in warnings), planning,
the service or the command line. ``yaml_file`` is general: the site file uses it, too.
"""

from firedex.scenario.builtin import BuiltInScenario, built_in_scenarios
from firedex.scenario.file import (
    InvalidScenarioFile,
    ScenarioFileError,
    read_scenario,
    scenario_warnings,
)
from firedex.scenario.yaml_file import (
    FileProblem,
    InvalidFile,
    UnreadableFile,
    parse_yaml,
    read_text,
)

__all__ = [
    "BuiltInScenario",
    "FileProblem",
    "InvalidFile",
    "InvalidScenarioFile",
    "ScenarioFileError",
    "UnreadableFile",
    "built_in_scenarios",
    "parse_yaml",
    "read_scenario",
    "read_text",
    "scenario_warnings",
]
