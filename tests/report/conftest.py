"""Two runs with their report, made once; copies of them for tests that change something."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from files import change_json
from oneway.tools.report import write_report


@pytest.fixture(scope="session")
def folders(two_runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs, the first begun by an odd command."""
    out = tmp_path_factory.mktemp("reported")
    copies = [Path(shutil.copytree(run, out / run.name)) for run in two_runs]
    change_json(copies[0] / "environment.json", command="oneway train streets --out <img>")
    return copies


@pytest.fixture(scope="session")
def page(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Their report."""
    out = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    assert write_report(folders, out) == out
    return out.read_text(encoding="utf-8")


@pytest.fixture
def copies(folders: list[Path], tmp_path: Path) -> list[Path]:
    """The runs again, for a test to change."""
    return [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in folders]
