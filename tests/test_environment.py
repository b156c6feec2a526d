"""The commit beside a run's numbers is that of our own source, or none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import oneway
from oneway.runs.environment import find_commit

PACKAGE = Path(oneway.__file__).parent


def git(folder: Path, *words: str) -> str:
    """What git prints, whatever the user's settings are."""
    settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def copy_package(folder: Path) -> Path:
    """A copy of the package in a folder."""
    return Path(shutil.copytree(PACKAGE, folder / "oneway", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one commit."""
    git(tmp_path, "init", "--quiet", "project")
    (tmp_path / "project" / "notes.txt").write_text("a")
    git(tmp_path / "project", "add", "notes.txt")
    git(tmp_path / "project", "commit", "--quiet", "--message", "first")
    return tmp_path / "project"


def test_the_commit_of_a_user_s_project_is_not_ours(project):
    """The package is installed in a virtual environment inside it, and a process imports it from there."""
    packages = project / ".venv" / "lib" / "python3.11" / "site-packages"
    package = copy_package(packages)
    code = (
        "import json, torch; from oneway.runs.environment import environment; "
        "print(json.dumps(environment(torch.device('cpu'))))"
    )
    variables = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, cwd=project)
    assert done.returncode == 0, done.stderr
    recorded = json.loads(done.stdout)
    assert (recorded["commit"], recorded["uncommitted"]) == (None, None)
    git(project, "add", "--force", ".venv")
    git(project, "commit", "--quiet", "--message", "with the virtual environment")
    assert find_commit(package) == (None, None)


def test_a_source_checkout_has_its_commit_and_says_whether_it_was_changed(project):
    """Changed and new files of the package count; others do not."""
    package = copy_package(project / "src")
    git(project, "add", "src")
    git(project, "commit", "--quiet", "--message", "our source")
    commit = git(project, "rev-parse", "HEAD")
    (project / "notes.txt").write_text("b")
    assert find_commit(package) == (commit, False)
    (package / "new.py").touch()
    assert find_commit(package) == (commit, True)
    (package / "new.py").unlink()
    (package / "__init__.py").write_text("")
    assert find_commit(package) == (commit, True)


def test_without_a_repository_or_git_there_is_no_commit(tmp_path, monkeypatch):
    package = copy_package(tmp_path / "src")
    assert find_commit(package) == (None, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_commit(package) == (None, None)


def test_git_is_led_nowhere_else(project, tmp_path, monkeypatch):
    """Neither by its variables, to a repository whose settings start a program, nor by our own checkout's."""
    package = copy_package(project / "src")
    git(project, "add", "src")
    git(project, "commit", "--quiet", "--message", "ours")
    commit = git(project, "rev-parse", "HEAD")
    git(tmp_path, "init", "--quiet", "strange")
    started = tmp_path / "started"
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    for repository in (project, tmp_path / "strange"):
        git(repository, "config", "core.fsmonitor", str(program))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "strange" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert find_commit(package) == (commit, False)
    assert not started.exists()
