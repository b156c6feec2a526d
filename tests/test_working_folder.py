"""What lies in the working folder decides nothing: no figure, no module."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import oneway

SOURCE = Path(oneway.__file__).parent
DRAW = """
import io, sys
from oneway.common.drawing import Figure, matplotlib, style
with style({"svg.hashsalt": "a", "svg.fonttype": "none"}):
    figure = Figure()
    figure.subplots().plot([1, 2])
    figure.suptitle("costs $5")
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
sys.stdout.write(file.getvalue())
"""
HOSTILE = {
    "LaTeX": b"text.usetex: True\ntext.latex.preamble: \\input{/etc/passwd}\nlines.linewidth: 9\nsavefig.dpi: 300\n",
    "a module": b"backend: module://stranger\nfigure.hooks: stranger:run\n",
    "no text": b"\xff\xfe\x00lines.linewidth: 9\n",
    "nonsense": b"lines.linewidth: nine\nno.such.key: 1\n",
}


def figure_drawn_in(folder: Path, program: str = DRAW) -> str:
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def usual(tmp_path_factory) -> str:
    """A figure drawn where nobody has left anything."""
    return figure_drawn_in(tmp_path_factory.mktemp("clean"))


@pytest.mark.parametrize("settings", HOSTILE.values(), ids=HOSTILE)
def test_figures_do_not_follow_a_file_in_the_working_folder(settings, usual, tmp_path):
    (tmp_path / "matplotlibrc").write_bytes(settings)
    (tmp_path / "stranger.py").write_text("raise SystemExit('obeyed')")
    assert figure_drawn_in(tmp_path) == usual


def test_figures_do_not_follow_the_settings_of_who_imports_us(usual, tmp_path):
    """A notebook that has chosen other sizes, say."""
    theirs = "import matplotlib\nmatplotlib.rcParams.update({'lines.linewidth': 9, 'font.size': 30})\n"
    assert figure_drawn_in(tmp_path, theirs + DRAW) == usual


def test_matplotlib_is_imported_in_one_place():
    """All others get it from there; whichever comes first decides which settings it reads."""
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(import|from) matplotlib", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found == {"common/safe_matplotlib.py", "common/drawing.py"}


@pytest.mark.parametrize("module", ["yaml", "cyclopts", "pydantic"])
def test_python_m_oneway_imports_nothing_from_the_working_folder(module, tmp_path):
    """A file that happens to be called like a package, or was meant to be taken for it."""
    (tmp_path / f"{module}.py").write_text("raise SystemExit('obeyed')")
    done = subprocess.run([sys.executable, "-m", "oneway", "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, oneway.__version__), done.stderr


def test_no_library_is_loaded_from_the_working_folder(tmp_path):
    """PyTorch's libraries would take it for the driver of a GPU."""
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    command = [sys.executable, "-m", "oneway", "bench"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{tmp_path / 'libcuda.so.1'}: PyTorch would run this file" in " ".join(done.stderr.split())


def test_a_working_folder_that_is_gone_is_said(tmp_path):
    """Removed, or replaced by a copy, under a shell that is still there; Intel's MKL would abort."""
    command = f"mkdir gone; cd gone; rmdir ../gone; exec {shlex.join([sys.executable, '-m', 'oneway', 'runs'])}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "The working folder is no longer there" in done.stderr
