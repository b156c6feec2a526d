"""Checkpoints with flipped bits or without their end: none is accepted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from oneway.config import Optimiser
from oneway.engine.optim import optimiser_for
from oneway.engine.state import TrainingState
from oneway.models.mlp import Perceptron
from oneway.models.roles import Models
from oneway.runs import checkpoint
from oneway.runs.checkpoint import tensors
from oneway.runs.checkpoint.state import tensors_of

ABOUT: dict[str, Any] = {"configuration": {}, "split": "0" * 64}


def trained(steps: int) -> TrainingState:
    """A student and another teacher, with an optimiser that has made so many steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(steps)
        student, teacher = Perceptron(2), Perceptron(2)
        state = TrainingState(Models((student,), (teacher,)), optimiser_for([student], Optimiser()))
        for _ in range(steps):
            state.optimiser.zero_grad()
            student(torch.randn(8, 2)).square().sum().backward()
            state.optimiser.step()
        return state


def write(folder: Path, iteration: int, state: TrainingState) -> None:
    """Writes a checkpoint of a state."""
    content = {name: tensor.detach().clone() for name, tensor in tensors_of(state).items()}
    checkpoint.write(folder, iteration, 1.5, tensors.pack(content, {"format": checkpoint.FORMAT}), ABOUT)


def is_noticed(folder: Path, before: TrainingState, path: Path, damaged: bytes) -> bool:
    """The damaged file is set aside, with a message; the state is that of the previous checkpoint, to the bit."""
    originals = {file: file.read_bytes() for file in folder.iterdir()}
    path.write_bytes(damaged)
    said: list[str] = []
    state = trained(1)
    try:
        found = checkpoint.restore_newest(folder, state, said.append)
        expected = tensors_of(before)
        return (
            found is not None
            and found.iteration == 10
            and len(said) == 1
            and all(word in said[0] for word in ("00000020", "damaged", "set aside"))
            and all(torch.equal(tensor, expected[name]) for name, tensor in tensors_of(state).items())
            and not path.exists()
            and path.with_name(f"{path.name}.damaged").exists()
        )
    finally:
        for file in folder.iterdir():
            file.unlink()
        for file, content in originals.items():
            file.write_bytes(content)


def damage(folder: str, flips: int, truncations: int, seed: int = 0) -> dict[str, Any]:
    """Flips bits of the newest of two checkpoints, and truncates it; one time in three, its manifest."""
    torch.set_num_threads(1)
    rng = random.Random(seed)
    place = Path(folder) / "checkpoint"
    place.mkdir()
    before = trained(3)
    write(place, 10, before)
    write(place, 20, trained(5))
    files = [place / "00000020.safetensors", place / "00000020.safetensors", place / "00000020.json"]
    contents = {path: path.read_bytes() for path in files}
    accepted = []
    for index in range(flips + truncations):
        path = files[index % len(files)]
        content = bytearray(contents[path])
        if index < flips:
            bit = rng.randrange(8 * len(content))
            content[bit // 8] ^= 1 << bit % 8
            what = f"bit {bit} of {path.name}"
        else:
            length = rng.choice([0, 1, 7, 8, len(content) - 1, rng.randrange(len(content))])
            del content[length:]
            what = f"{path.name} cut to {length} bytes"
        if not is_noticed(place, before, path, bytes(content)):
            accepted.append(what)
    return {"tried": flips + truncations, "accepted": accepted}
