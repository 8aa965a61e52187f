"""The imports of the client library."""

import subprocess
import sys

import pytest

OTHER_EXTRAS = ("flask", "sqlalchemy", "dash", "yaml", "matplotlib", "starlette", "scipy", "numpy")
NOT_LOADED = (*OTHER_EXTRAS, "firedex_models", "firedex.planning", "firedex.scenario")


def run_python(code: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_only_what_the_library_needs() -> None:
    # httpx imports rich if it is installed; this hides rich.
    code = "import sys; sys.modules['rich'] = None; import firedex_clients;"
    code += f"print([name for name in {NOT_LOADED} if name in sys.modules])"
    assert run_python(code) == "[]"


@pytest.mark.parametrize("module", ["commands", "delivery_log", "sn_publisher"])
def test_every_module_runs_without_other_extras(module: str) -> None:
    names = [name for name in (*OTHER_EXTRAS, "rich") if name != "numpy"]  # pyarrow loads it
    run_python(
        f"import sys; sys.modules.update(dict.fromkeys({names})); import firedex_clients.{module}"
    )
