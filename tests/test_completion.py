"""What the Tab key offers, as bash asks for it after `oneway --install-completion`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oneway.config.recipes import RECIPES
from oneway.methods import METHODS

# A shell that a user opens: it reads its start-up file, and completes the line that it is given.
TAB = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _oneway; printf "%s\\n" "${COMPREPLY[@]}"'

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Of a user who has installed completion."""
    folder = tmp_path_factory.mktemp("home")
    (folder / ".bashrc").write_text("alias ll='ls -l'")  # without a line break at its end
    command = [sys.executable, "-m", "oneway", "--install-completion", "--shell", "bash"]
    for _ in range(2):  # the second time changes nothing
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "HOME": str(folder)})
    return folder


def offered(home: Path, *words: str) -> list[str]:
    """What is offered for the last word."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "--rcfile", str(home / ".bashrc"), "-i", "-c", TAB, "bash", "oneway", *words]
    variables = {**os.environ, "HOME": str(home), "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env=variables, timeout=60)
    assert not done.returncode, done.stderr
    return done.stdout.split()


def test_installing_adds_one_line_to_the_start_up_file(home):
    """What was there stays."""
    first, *added = (home / ".bashrc").read_text().splitlines()
    assert first == "alias ll='ls -l'"
    assert sum("completions/oneway" in line for line in added) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("tr",), ["train"]),
        (("runs", "--so"), ["--sort"]),
        (("runs", "--sort", "sc"), ["score"]),
        (("train", "cityscapes-half"), [name for name in RECIPES if name.startswith("cityscapes-half")]),
        (("train", "streets", "--method", "mt-"), [name for name in METHODS if name.startswith("mt-")]),
        (("train", "streets", "--train.batch-"), ["--train.batch-labelled", "--train.batch-unlabelled"]),
        (("train", "streets", "--optimiser.schedule", "s"), ["steps"]),
        (("eval", ".bash"), [".bashrc"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_tab_completes(home, words, expected):
    """Verbs, recipes, methods, flags, their values, and files."""
    found = offered(home, *words)
    assert {*expected} <= {*found}
    assert all(name.startswith(words[-1]) for name in found)
