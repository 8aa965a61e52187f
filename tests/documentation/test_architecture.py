"""``docs/architecture.md`` and the import rules name every package."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("", "models", "controller", "clients", "mininet_topos", "spark")


def packages() -> list[str]:
    """Return the dotted names of all packages of the product, without the top one."""
    found = []
    for folder in FOLDERS:
        for init in (ROOT / folder).glob("firedex*/**/__init__.py"):
            found.append(".".join(init.parent.relative_to(ROOT / folder).parts))
    return sorted(set(found) - {"firedex"})


def layered_modules() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = [line for contract in contracts for line in contract.get("layers", [])]
    return {name.strip() for line in layers for name in line.split("|")}


def test_packages_are_found() -> None:
    assert {"firedex.wire", "firedex.service.web", "firedex_models.simulation"} <= set(packages())


@pytest.mark.parametrize("package", packages())
def test_package_is_described(package: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \|", text, re.MULTILINE)
    described = dict(rows)
    assert package in described, f"add a row for {package} to docs/architecture.md"
    assert len(described[package].split()) >= 4


@pytest.mark.parametrize("package", packages())
def test_package_is_in_a_layer(package: str) -> None:
    layers = layered_modules()
    inside = any(package == name or package.startswith(f"{name}.") for name in layers)
    assert inside, f"add {package} to the layers of import-linter in pyproject.toml"


def test_modules_on_the_drawn_paths_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    modules = re.findall(r"\b\d+ (firedex[\w.]+)", text)
    assert len(modules) > 50
    assert [name for name in modules if find_spec(name) is None] == []
