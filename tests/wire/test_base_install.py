"""The base installation contains pydantic only: ``firedex.wire`` must not need more."""

import subprocess
import sys

EXTRAS = {"numpy", "scipy", "yaml", "click", "rich", "numba", "firedex_models"}


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules that a new interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(process.stdout.split())


def test_importing_wire_loads_no_extras() -> None:
    loaded = modules_after("import firedex.wire")
    assert "pydantic" in loaded
    assert loaded & EXTRAS == set()


def test_using_wire_loads_no_extras() -> None:
    loaded = modules_after(
        "from firedex.wire import *\n"
        "value = from_json(LogUtility, to_json(LogUtility(weight=1.0)))\n"
        "try: from_plain(Scenario, {'name': 'x', 'topics': []})\n"
        "except InvalidValue: pass"
    )
    assert loaded & EXTRAS == set()


def test_importing_the_command_line_loads_no_heavy_modules() -> None:
    heavy = {"numpy", "numba", "scipy", "pyspark", "dash", "sqlalchemy", "matplotlib"}
    assert modules_after("import firedex.cli") & (heavy | EXTRAS - {"click"}) == set()


def test_planning_commands_load_no_network_modules() -> None:
    loaded = modules_after("import firedex.cli.plan")
    assert loaded & {"paho", "flask", "starlette", "os_ken", "ryu", "mininet"} == set()


def test_command_line_names_the_missing_extra() -> None:
    code = "import sys; sys.modules['click'] = None; import firedex.cli; firedex.cli.main()"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert process.returncode == 1
    assert "pip install 'firedex[cli]'" in process.stderr
    assert "Traceback" not in process.stderr
