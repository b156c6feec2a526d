"""Killed anywhere, resumed to the byte: with real processes and real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from oneway import checkpoint
from oneway.config import Optimiser
from oneway.optim import optimiser_for
from oneway.step import TrainingState
from processes import oneway

ITERATIONS = 60
FLAGS = (
    f"streets --data.images 16 --data.size 32 64 --jitter.crop 32 64 --model.width 0.125 --labels 4 "
    f"--train.batch-labelled 2 --train.batch-unlabelled 2 --train.iterations {ITERATIONS} "
    f"--train.checkpoint-every 10 --train.validate-every 20 --train.log-every 5"
).split()


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    """A training process of its own."""
    command = [sys.executable, "-m", "oneway", "train", *FLAGS, *flags, "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_checkpoint(process: subprocess.Popen[str], folder: Path, iteration: int) -> None:
    """Until the checkpoint of an iteration is on disk."""
    deadline = time.monotonic() + 120
    while not (folder / "checkpoint" / f"{iteration:08d}.safetensors").exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def contents(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the kept model and of the last checkpoint: student, teacher, optimiser."""
    last = folder / "checkpoint" / f"{ITERATIONS:08d}.safetensors"
    model = safetensors.torch.load_file(folder / "model.safetensors")
    return {f"model.{name}": tensor for name, tensor in model.items()} | safetensors.torch.load_file(last)


@pytest.fixture(scope="module", params=["simple-phtps", "mt-phtps"])
def uninterrupted(request, tmp_path_factory) -> tuple[str, Path]:
    """A method, and a run of it that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    process = start(folder, "--method", request.param)
    assert process.wait(180) == 0
    return request.param, folder


@pytest.mark.parametrize(
    ("stop", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 128 + 15), (signal.SIGINT, 128 + 2)]
)
def test_a_stopped_run_resumes_to_the_bit(uninterrupted, stop, status, tmp_path):
    """30 iterations, stopped and resumed, equal 60 in one go: every tensor, and every metric."""
    method, whole = uninterrupted
    folder = tmp_path / "run"
    process = start(folder, "--method", method)
    wait_for_checkpoint(process, folder, 30)
    process.send_signal(stop)
    assert process.wait(60) == status
    assert not (folder / "summary.json").exists()

    done = oneway("train", "streets", "--out", folder, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    expected, found = contents(whole), contents(folder)
    assert expected.keys() == found.keys()
    assert any(name.startswith("teacher.") for name in found) == (method == "mt-phtps")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert (folder / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    values = [json.loads((run / "summary.json").read_text())["value"] for run in (whole, folder)]
    assert values[0] == values[1]


def test_only_the_last_two_checkpoints_are_kept(uninterrupted):
    """Disk use does not grow with the run, and no temporary file stays behind."""
    _, folder = uninterrupted
    names = sorted(path.name for path in (folder / "checkpoint").iterdir())
    assert names == ["00000050.safetensors", "00000060.safetensors"]


def test_a_run_killed_before_its_first_checkpoint_starts_over(uninterrupted, tmp_path):
    """Nothing was saved, so the resumed run is the whole run; a half-written line of metrics is no obstacle."""
    method, whole = uninterrupted
    folder = tmp_path / "run"
    process = start(folder, "--method", method)
    while not (folder / "config.yaml").exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait(60)
    for saved in (folder / "checkpoint").glob("*"):
        saved.unlink()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 5, "superv')
    done = oneway("train", "streets", "--out", folder, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (folder / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()


@pytest.mark.parametrize("name", ["adam", "sgd"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_restored_optimiser_takes_the_same_step(name, memory_format, tmp_path):
    """For both optimisers and both memory layouts: saved, restored into fresh objects, and stepped, to the bit."""

    def fresh() -> TrainingState:
        torch.manual_seed(0)
        model = torch.nn.Conv2d(4, 8, 3).to(memory_format=memory_format)
        return TrainingState(model, model, optimiser_for(model, Optimiser(name=name, learning_rate=0.1)))

    def step(state: TrainingState, seed: int) -> None:
        state.optimiser.zero_grad()
        x = torch.rand(2, 4, 9, 9, generator=torch.Generator().manual_seed(seed))
        state.student(x).square().sum().backward()
        state.optimiser.step()

    state, other = fresh(), fresh()
    for seed in range(3):
        step(state, seed)
    checkpoint.load(checkpoint.save(tmp_path / "checkpoint", 3, 0.0, state), other)
    for each in (state, other):
        step(each, 3)
    for mine, theirs in zip(state.student.parameters(), other.student.parameters(), strict=True):
        assert torch.equal(mine, theirs)
