"""The base install carries pydantic alone: the contract must not need more."""

import subprocess
import sys

EXTRAS = {"numpy", "scipy", "yaml", "click", "rich", "numba", "firedex_models"}


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ran.stdout.split())


def test_the_contract_loads_none_of_the_extras() -> None:
    loaded = modules_after("import firedex.wire")
    assert "pydantic" in loaded
    assert loaded & EXTRAS == set()


def test_the_contract_is_used_without_the_extras() -> None:
    loaded = modules_after(
        "from firedex.wire import *\n"
        "value = from_json(LogUtility, to_json(LogUtility(weight=1.0)))\n"
        "try: from_plain(Scenario, {'name': 'x', 'topics': []})\n"
        "except InvalidValue: pass"
    )
    assert loaded & EXTRAS == set()


def test_the_planning_extra_brings_the_whole_command_line() -> None:
    loaded = modules_after("import firedex.cli.commands")
    assert "numba" in loaded
    assert loaded & {"paho", "flask", "waitress", "os_ken", "ryu", "mininet"} == set()


def test_the_command_line_names_what_is_missing() -> None:
    code = "import sys; sys.modules['click'] = None; import firedex.cli; firedex.cli.main()"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 1
    assert "'click'" in ran.stderr
    assert "pip install 'firedex[planning]'" in ran.stderr
    assert "Traceback" not in ran.stderr
