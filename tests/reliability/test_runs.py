"""Runs that are killed, stopped or out of disk space, and resumed; at full size."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from reliability import disks, kills, order, stops
from reliability.harness import MOONS, done

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "job"), kills.points().items(), ids=kills.points())
def test_killed_anywhere(name, job, tmp_path, survives):
    """A kill -9 in a step, within a write, before and after a rename: the resumed run is the same byte for byte."""
    survives("1 kill -9, resumed to the byte", kills.resumes_exactly(tmp_path, job))


STOPPING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1, signal.SIGUSR2]


@pytest.mark.parametrize(
    ("number", "iteration"),
    [*((number, iteration) for number in STOPPING[:2] for iteration in (4, 12, 20)), *((n, 12) for n in STOPPING[2:])],
)
def test_stopped(number, iteration, tmp_path, survives):
    """A signal: a checkpoint, the shell's exit status, and the same run."""
    survives("2 SIGTERM, SIGINT and others", stops.resumes_exactly(tmp_path, number, iteration))


@pytest.mark.parametrize("number", STOPPING)
def test_stopped_twice(number, tmp_path, survives):
    """A second signal while the checkpoint of the first is being written."""
    survives("2 a second signal while saving", stops.survives_a_second_signal(tmp_path, number))


def test_order_of_calls(tmp_path, tally):
    """Every rename of a run, as the process records it."""
    done(tmp_path, *MOONS, fault={"trace": str(tmp_path / "trace")})
    count, wrong = order.renames(order.from_trace(tmp_path / "trace"), tmp_path / "run")
    tally("3 file fsync, rename, folder fsync", count, count - len(wrong))
    assert count > 12
    assert not wrong


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_order_of_calls_by_strace(tmp_path, tally):
    """The same, seen from outside."""
    log = tmp_path / "strace"
    watched = ["strace", "-f", "-y", "-s", "0", "-e", "trace=write,fsync,fdatasync,rename", "-o", log]
    command = [*watched, sys.executable, "-m", "oneway", *MOONS]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if ended.returncode and not log.exists():
        pytest.skip("strace is not allowed here")
    assert ended.returncode == 0, ended.stderr
    count, wrong = order.renames(order.from_strace(log), tmp_path / "run")
    tally("3 the same, seen by strace", count, count - len(wrong))
    assert count > 12
    assert not wrong


@pytest.mark.parametrize(("name", "fault"), disks.POINTS.items(), ids=disks.POINTS)
def test_disk_full_or_not_writable(name, fault, tmp_path, survives):
    """The run stops with path and bytes, leaves no incomplete file, and continues later."""
    survives("4 disk full, quota, no permission", disks.stops_with_the_reason(tmp_path, fault))


def test_disk_that_fills_up(tmp_path, tally):
    """A real one, filled by another program."""
    survived = disks.fills_up(tmp_path)
    if survived is None:
        pytest.skip("only root may mount")
    tally("4 a real disk that fills up", 1, survived)
    assert survived


@pytest.mark.parametrize("name", disks.TOO_SMALL)
def test_no_room_from_the_start(name, tmp_path, tally):
    """Refused before the first step, and nothing is left behind."""
    survived = disks.TOO_SMALL[name](tmp_path)
    if survived is None:
        pytest.skip("only root may mount")
    tally("4 no room: refused before the start", 1, survived)
    assert survived
