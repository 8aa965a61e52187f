"""The wheel holds the product alone, and each extra works in an empty environment."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "firedex",
    "firedex_clients",
    "firedex_controller",
    "firedex_emulation",
    "firedex_models",
    "firedex_spark",
}
COMMANDS_OF_EXTRA = {
    "cli": ["--help"],
    "clients": ["sub", "--help"],
    "controller": ["controller", "--help"],
    "federation": ["certificates", "--help"],
    "gateway": ["gateway", "--help"],
    "planning": ["check", "builtin:high-rise"],
    "service": ["serve", "--help"],
    "site": ["up", "--help"],
    "emulation": ["emulate", "--help"],
    "spark": ["spark", "--help"],
    "lab": ["bench", "--help"],
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = "from hatchling.builders.wheel import WheelBuilder as B; import sys\n"
    build += "print(list(B(sys.argv[1]).build(directory=sys.argv[2], versions=['standard'])))"
    subprocess.run(
        [sys.executable, "-c", build, str(ROOT), str(folder)], check=True, capture_output=True
    )
    (made,) = folder.glob("*.whl")
    return made


def test_wheel_contains_only_the_product(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == PACKAGES
    parts = {part for name in names for part in Path(name).with_suffix("").parts}
    assert not [part for part in parts if part.startswith(("fake", "test_", "conftest"))]
    data = {Path(name).suffix for name in names if ".dist-info/" not in name}
    assert data <= {".py", ".typed", ".yaml", ".js", ".css", ".mako"}


def test_wheel_contains_the_built_in_scenarios_and_the_dashboard(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "firedex/scenario/builtin_files/high-rise.yaml" in names
    assert any(name.startswith("firedex/dashboard/assets/") for name in names)


@pytest.mark.long
@pytest.mark.parametrize("extra", sorted(COMMANDS_OF_EXTRA))
def test_extra_works_in_an_empty_environment(extra: str, wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    pip = [str(binaries / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", f"{wheel}[{extra}]"], check=True)
    ran = subprocess.run(
        [str(binaries / "firedex"), *COMMANDS_OF_EXTRA[extra]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    listed = subprocess.run([*pip, "list"], check=True, capture_output=True, text=True).stdout
    packages = len(listed.splitlines()) - 2
    size = sum(f.stat().st_size for f in (tmp_path / "venv").rglob("*") if f.is_file())
    print(f"firedex[{extra}]: {packages} packages, {size / 1e6:.0f} MB")
