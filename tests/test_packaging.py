"""What is installed elsewhere: a wheel and the sources, made and used without git and without this folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import oneway

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A wheel and the sources; `build` makes the first from the second, so that nothing can be missing there."""
    folder = tmp_path_factory.mktemp("packages")
    for name in ("src", "docs", "tests"):
        shutil.copytree(ROOT / name, folder / "copy" / name)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, folder / "copy")
    (folder / "bin").mkdir()  # an empty PATH: there is no git
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder / "copy")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": str(folder / "bin")})
    assert not done.returncode, done.stdout + done.stderr
    return folder / "dist"


def wheel(packages: Path) -> Path:
    return packages / f"oneway-{oneway.__version__}-py3-none-any.whl"


def test_the_wheel_holds_the_whole_package(packages):
    """Also what is no Python: pages, templates, the mark of a typed package; and nothing besides."""
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "oneway").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel(packages)) as archive:
        names = set(archive.namelist())
        about = archive.read(f"oneway-{oneway.__version__}.dist-info/METADATA").decode()
    assert {"oneway/py.typed", "oneway/tools/report/page.html.j2", "oneway/tools/explore/static/index.html"} <= source
    assert {name for name in names if name.startswith("oneway/")} == source
    assert f"oneway-{oneway.__version__}.dist-info/licenses/LICENSE" in names
    assert "License-Expression: MIT" in about
    assert "Requires-Python: >=3.11" in about


def test_the_sources_come_with_licence_changes_and_tests(packages):
    """And without what this folder holds besides."""
    with tarfile.open(packages / f"oneway-{oneway.__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "README.md", "CITATION.cff", "constraints.txt", "Makefile"} <= names
    assert {"tests/test_packaging.py", "docs/own-data.md", "mkdocs.yml"} <= names
    assert not [name for name in names if re.search(r"\.pyc$|^(build|dist|runs)/", name)]


def test_the_version_is_the_same_everywhere():
    """In the package, in the citation, and on top of the changelog."""
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == oneway.__version__
    released = re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released[0] == oneway.__version__


def test_the_page_about_installing_has_every_extra():
    """Those that a user may want, that is: each has a row."""
    rows = re.findall(r"^\| (`.+`) \|", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.partition("|")[0])}
    assert named == {*PROJECT["optional-dependencies"]} - {"docs", "test"}


def test_workflows_do_what_the_makefile_can_on_pythons_that_are_promised():
    """Every `make …` is a target, and every Python is one that the metadata names."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    promised = {classifier.rpartition(" ")[2] for classifier in PROJECT["classifiers"] if ":: 3." in classifier}
    called, pythons = set(), set()
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values():
            called |= {step["run"].split()[1] for step in job["steps"] if step.get("run", "").startswith("make ")}
            pythons |= {*job.get("strategy", {}).get("matrix", {}).get("python", ())}
    assert {"test", "wheel", "docs"} <= called <= targets
    assert pythons == promised


@pytest.mark.slow
def test_the_quickstart_starts_from_a_wheel_alone(packages, tmp_path):
    """In an environment of its own, far from the repository; only packages of others are borrowed from this one."""
    environment, place = tmp_path / "environment", tmp_path / "elsewhere"
    place.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel(packages))]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True)
    libraries = next(environment.glob("lib/python*/site-packages"))
    # A folder named in a .pth file is searched, and its own .pth files are not obeyed: not the one that leads to src/.
    (libraries / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    variables = {"HOME": str(tmp_path), "PATH": str(environment / "bin"), "OMP_NUM_THREADS": "1"}

    def said(*command: str) -> str:
        return subprocess.run(command, cwd=place, env=variables, check=True, capture_output=True, text=True).stdout

    assert said(str(python), "-c", "import oneway; print(oneway.__file__)").startswith(str(environment))
    assert said("oneway", "--version") == said(str(python), "-m", "oneway", "--version") == f"{oneway.__version__}\n"
    begun = place / "runs" / "quickstart" / "supervised" / "metrics.jsonl"
    process = subprocess.Popen(["oneway", "quickstart"], cwd=place, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 240
        while not (begun.is_file() and begun.stat().st_size) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert begun.stat().st_size
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 128 + signal.SIGINT
    finally:
        process.kill()
        process.wait()
