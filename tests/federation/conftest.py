"""Organisations with certificates, for all tests of the federation."""

import shutil
from pathlib import Path

import pytest

from tests.support.organisations import Organisation, organisation


@pytest.fixture(scope="session")
def organisations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create organisations once; tests copy them, because every write waits for the disk."""
    folder = tmp_path_factory.mktemp("organisations")
    organisation(folder / "port-authority", "port", "dock")
    organisation(folder / "fire-department", "fire")
    return folder


@pytest.fixture
def port(organisations: Path, tmp_path: Path) -> Organisation:
    copied = shutil.copytree(organisations / "port-authority", tmp_path / "port-authority")
    return Organisation(path=copied)


@pytest.fixture
def fire(organisations: Path, tmp_path: Path) -> Organisation:
    copied = shutil.copytree(organisations / "fire-department", tmp_path / "fire-department")
    return Organisation(path=copied)
