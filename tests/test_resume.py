"""Runs that are killed and resumed, in new processes with real signals, end with the same bytes as a whole run.

`tests/reliability` kills at forty points, in forks, with a mean teacher; here the teacher is the student.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

import forks
from processes import forked, oneway

ITERATIONS = 40
FLAGS = (
    f"streets --data.images 16 --data.size 32 64 --jitter.crop 32 64 --model.width 0.125 --labels 4 "
    f"--train.batch-labelled 2 --train.batch-unlabelled 2 --train.iterations {ITERATIONS} "
    f"--train.checkpoint-every 10 --train.validate-every 20 --train.log-every 5"
).split()
FIRST = "checkpoint/00000010.json"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""As forked processes have: with another number of threads, sums round otherwise."""


def wait_for(file: Path) -> None:
    """Returns when a file is on the disk."""
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def contents(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the kept model and of the last checkpoint: student, teacher, optimiser."""
    last = folder / "checkpoint" / f"{ITERATIONS:08d}.safetensors"
    model = safetensors.torch.load_file(folder / "model.safetensors")
    return {f"model.{name}": tensor for name, tensor in model.items()} | safetensors.torch.load_file(last)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    done = forked("train", *FLAGS, "--out", "run", cwd=folder, report=False)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def assert_same(whole: Path, folder: Path) -> None:
    """Every tensor, every metric, and the value of both runs."""
    expected, found = contents(whole), contents(folder)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert (folder / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    values = [json.loads((run / "summary.json").read_text())["value"] for run in (whole, folder)]
    assert values[0] == values[1]


def test_a_killed_run_resumes_to_the_bit(whole, tmp_path):
    """Killed after about 10 iterations and resumed by a new process, it equals 40 in one go."""
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "oneway", "train", *FLAGS, "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **ONE_THREAD})
    wait_for(folder / FIRST)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    assert not (folder / "summary.json").exists()
    done = oneway("train", "streets", "--out", "run", "--resume", cwd=tmp_path, **ONE_THREAD)
    assert done.returncode == 0, done.stderr
    assert_same(whole, folder)


def test_an_interrupted_run_resumes_to_the_bit(whole, tmp_path):
    """After Ctrl-C, and with no more than its folder named; without the flag, it is said what the folder is."""
    folder = tmp_path / "run"
    job = forks.start(tmp_path, command=["train", *FLAGS, "--out", "run"])
    wait_for(folder / FIRST)
    os.kill(job.process, signal.SIGINT)
    assert job.wait() == 128 + signal.SIGINT, job.error
    assert not (folder / "summary.json").exists()
    refused = forked("train", folder, cwd=tmp_path)
    assert refused.returncode == 1
    assert "a run, and not a recipe" in refused.stderr
    done = forked("train", "--resume", "run", cwd=tmp_path, report=False)
    assert done.returncode == 0, done.stderr
    assert_same(whole, folder)


def test_a_stopped_run_can_be_ended_where_it_was_saved(whole, tmp_path):
    """By the command that the refusal to evaluate it names."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    for name in ("summary.json", "model.safetensors", f"checkpoint/{ITERATIONS:08d}.json"):
        (folder / name).unlink()
    refused = forked("eval", "run", cwd=tmp_path)
    assert refused.returncode == 1
    words = shlex.split(refused.stderr.rpartition("after 30 iterations: ")[2])
    assert words[0] == "oneway", refused.stderr
    done = forked(*words[1:], cwd=tmp_path, report=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "summary.json").read_text())["iterations"] == 30


@pytest.mark.parametrize("kept", [3, 6])
def test_a_log_that_is_older_than_its_checkpoint_is_said_to_be(whole, tmp_path, kept):
    """As where a folder is copied while it trains: the curves have a hole; there is no word where they have none."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    for name in ("summary.json", "model.safetensors", f"checkpoint/{ITERATIONS:08d}.json"):
        (folder / name).unlink()
    lines = [line for line in (whole / "metrics.jsonl").read_text().splitlines(keepends=True) if "learning" in line]
    (folder / "metrics.jsonl").write_text("".join(lines[:kept]))
    done = forked("train", "--resume", "run", cwd=tmp_path, report=False)
    assert done.returncode == 0, done.stderr
    note = f"metrics.jsonl ends at iteration {5 * kept}, and the checkpoint is of iteration 30"
    assert (note in " ".join(done.stdout.split())) == (kept < 6)
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_only_the_last_two_checkpoints_are_kept(whole):
    """Disk use does not grow with the run, and no temporary file stays behind."""
    names = sorted(path.name for path in (whole / "checkpoint").iterdir())
    assert names == [f"{iteration:08d}.{suffix}" for iteration in (30, 40) for suffix in ("json", "safetensors")]


def test_a_run_killed_before_its_first_checkpoint_starts_over(whole, tmp_path):
    """The resumed run is the whole run; an incomplete line of metrics is dropped."""
    folder = tmp_path / "run"
    job = forks.start(tmp_path, command=["train", *FLAGS, "--out", "run"])
    wait_for(folder / "config.yaml")
    os.kill(job.process, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL, job.error
    for saved in (folder / "checkpoint").glob("*"):
        saved.unlink()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 5, "superv')
    done = forked("train", "streets", "--out", folder, "--resume", cwd=tmp_path, report=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (folder / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
