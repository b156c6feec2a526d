"""Processes that decode a pool: killed, crashed, left alone; what they give is what the pool gives, or a message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from oneway.common.errors import UserError
from oneway.data.pool import decoders as deciding
from oneway.data.pool.decoders import Processes
from pools import SIZES, opened, pack, write_images

SLOTS = 8


@pytest.fixture
def pool(tmp_path):
    folder = write_images(tmp_path / "images", 12)
    return opened(pack(folder, tmp_path / "shards"), tmp_path / "cache")


@pytest.fixture
def decoders(pool):
    made = pool.decoders(0, SLOTS, 64 * 64)
    assert isinstance(made, Processes)
    yield made
    made.close()


def whole(size):
    return 0, 0, *size


def inner(size):
    return 2, 3, size[0] - 5, size[1] - 1


def end_at(size, height, by):
    """Ends the process that chooses a part of an image of this height."""
    if size[0] == height:
        os.kill(os.getpid(), by)
    return whole(size)


def report_torch(size):
    """Two rows where the process has PyTorch, else one."""
    return 0, 0, 1 + ("torch" in sys.modules), size[1]


def begin_all(decoders, choose):
    for slot in range(SLOTS):
        decoders.begin(slot, slot + 2, choose)


def assert_same(pool, decoders, choose):
    for slot in range(SLOTS):
        found, expected = decoders.result(slot), pool.decode(slot + 2, choose)
        assert found[:2] == expected[:2]
        assert found.image == expected.image
        assert np.array_equal(found.pixels, expected.pixels)


def processes_of(decoders):
    """Those that decode."""
    parents = {forker.pid for forker in decoders.forkers}
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) in parents:
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


def wait_until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_slots_hold_what_was_asked_for_last(pool, decoders):
    begin_all(decoders, whole)
    begin_all(decoders, inner)  # nobody has waited for the others
    assert_same(pool, decoders, inner)
    begin_all(decoders, whole)
    assert_same(pool, decoders, whole)


def test_a_process_that_is_killed_is_replaced(pool, decoders):
    begin_all(decoders, whole)
    assert_same(pool, decoders, whole)
    before = set(processes_of(decoders))
    assert len(before) == pool.workers
    for process in before:
        os.kill(process, signal.SIGSTOP)  # so that it dies with work in hand
    begin_all(decoders, inner)
    for process in before:
        os.kill(process, signal.SIGKILL)
    assert_same(pool, decoders, inner)
    assert set(processes_of(decoders)).isdisjoint(before)
    assert not pool.broken


def test_signals_to_all_of_a_run_are_for_the_one_that_decides(pool, decoders):
    """As Ctrl-C in a terminal, or Slurm's."""
    begin_all(decoders, whole)
    assert_same(pool, decoders, whole)
    before = processes_of(decoders)
    for process in [*before, *(forker.pid for forker in decoders.forkers)]:
        for each in (signal.SIGINT, signal.SIGTERM):
            os.kill(process, each)
    begin_all(decoders, inner)
    assert_same(pool, decoders, inner)
    assert processes_of(decoders) == before


def test_an_image_that_crashes_its_decoder_is_broken(pool, decoders):
    """Others take its place, the same ones as if it could not be decoded."""
    choose = partial(end_at, height=SIZES[2][0], by=signal.SIGSEGV)
    decoders.begin(0, 1, choose)
    found = decoders.result(0)
    assert found.size in SIZES[:2]
    assert "the decoder crashes on it (SIGSEGV)" in pool.broken[1]
    assert "00000.tar" in pool.broken[1]


def test_processes_that_are_ended_from_outside_stop_the_run(pool, decoders):
    """The image is not to blame: a run that goes on later must see it."""
    decoders.begin(0, 1, partial(end_at, height=SIZES[2][0], by=signal.SIGKILL))
    with pytest.raises(UserError, match=r"00000\.tar/a/\S+: the process .* was ended by SIGKILL, 2 times"):
        decoders.result(0)
    assert not pool.broken


def test_processes_that_cannot_even_start_are_no_endless_loop(pool, monkeypatch):
    monkeypatch.setattr(deciding, "CODE", "raise SystemExit(3)")
    decoders = pool.decoders(0, SLOTS, 64 * 64)
    decoders.begin(0, 1, whole)
    with pytest.raises(UserError, match="was ended by status 3, 2 times"):
        decoders.result(0)
    decoders.close()


def test_errors_that_nobody_expects_arrive_with_their_place(pool):
    """Here, of an image that is larger than it can be."""
    decoders = pool.decoders(0, SLOTS, 16)
    decoders.begin(0, 1, whole)
    with pytest.raises(ValueError, match="reshape") as raised:
        decoders.result(0)
    assert "in serve" in raised.value.__notes__[0]
    decoders.close()


def test_processes_that_decode_have_no_pytorch(decoders):
    """It takes seconds to import."""
    decoders.begin(0, 1, report_torch)
    assert len(decoders.result(0).pixels) == 1


def test_nobody_is_left_when_a_run_is_killed(pool, tmp_path):
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_decoders import begin_all, processes_of, whole
from pools import opened
decoders = opened(*sys.argv[2:]).decoders(0, 8, 64 * 64)
begin_all(decoders, whole)
decoders.result(7)
print(*processes_of(decoders), *(forker.pid for forker in decoders.forkers), flush=True)
time.sleep(100)
"""
    given = (Path(__file__).parent, pool.source.name, tmp_path / "cache")
    code = code.replace("opened(*sys.argv[2:])", "opened(sys.argv[2], __import__('pathlib').Path(sys.argv[3]))")
    run = subprocess.Popen([sys.executable, "-c", code, *map(str, given)], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    others = run.stdout.readline().split()
    assert len(others) == pool.workers + 1
    run.kill()
    run.communicate()
    wait_until(lambda: not any(_alive(other) for other in others))


def test_closing_ends_them(pool):
    decoders = pool.decoders(0, SLOTS, 64 * 64)
    begin_all(decoders, whole)
    decoders.result(0)
    others = processes_of(decoders)
    decoders.close()
    wait_until(lambda: not any(map(_alive, others)))


def _alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
