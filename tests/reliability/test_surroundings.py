"""A run does not depend on who reads what it prints, and saves its state when its time is up; at full size."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from reliability import surroundings
from reliability.harness import MOONS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", surroundings.LOST)
def test_output_that_nobody_can_read(how, tmp_path, survives):
    """The same files, and status 0."""
    survives("15 output that nobody can read", surroundings.trains_unread(tmp_path, how))


def test_nohup(tmp_path, survives):
    """SIGHUP stays ignored."""
    survives("2 nohup", surroundings.nohup_is_obeyed(tmp_path))


def test_processor_time(tmp_path, survives):
    """A limit of the system's own."""
    survives("2 processor time used up", surroundings.saves_when_its_time_is_up(tmp_path))


@pytest.mark.parametrize("more", [0, 2**20, 2**26])
def test_address_space_that_ends(more, tmp_path, survives):
    """Nothing, little and hardly enough is left."""
    survives("15 address space that ends", surroundings.says_that_memory_has_ended(tmp_path, more))


def test_too_little_address_space_is_refused(tmp_path, tally):
    """3 GB, as some batch systems give: said before anything is loaded that would abort."""
    command = [sys.executable, "-m", "oneway", *MOONS]
    limited = subprocess.run(
        ["bash", "-c", f"ulimit -v 3000000; exec {shlex.join(command)}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if limited.returncode == 0:
        pytest.skip("this PyTorch needs less")
    survived = limited.returncode == 1 and "may address 2,930 MiB" in limited.stderr and not (tmp_path / "run").exists()
    tally("15 too little address space: refused", 1, survived)
    assert survived, limited.stderr
