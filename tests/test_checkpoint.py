"""Checkpoints, models, locks and other files of a run that have to be whole."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from oneway.common.errors import UserError
from oneway.config import Model, Optimiser
from oneway.config.recipes import recipe
from oneway.engine import memory
from oneway.engine.optim import optimiser_for
from oneway.engine.state import TrainingState
from oneway.models.mlp import Perceptron
from oneway.models.roles import Models
from oneway.runs import atomic, checkpoint, lock
from oneway.runs.checkpoint import Damaged, load, restore_newest, tensors
from oneway.runs.checkpoint.state import bytes_needed, tensors_of
from oneway.runs.checkpoint.writer import Writer
from oneway.runs.model_file import TrainedModel, load_model, save_model
from reliability.damage import ABOUT, trained, write

CPU = torch.device("cpu")


def equal(one: TrainingState, other: TrainingState) -> bool:
    """Every tensor, to the bit."""
    mine, theirs = tensors_of(one), tensors_of(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def conv(optimiser: str, memory_format: torch.memory_format) -> TrainingState:
    torch.manual_seed(0)
    model = torch.nn.Conv2d(4, 8, 3).to(memory_format=memory_format)
    return TrainingState(
        Models((model,), (model,)), optimiser_for([model], Optimiser(name=optimiser, learning_rate=0.1))
    )


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_restored_optimiser_takes_the_same_step(name, memory_format, tmp_path):
    """To the bit, for all optimisers and both memory layouts: saved, and restored into new objects."""

    def step(state: TrainingState, seed: int) -> None:
        state.optimiser.zero_grad()
        x = torch.rand(2, 4, 9, 9, generator=torch.Generator().manual_seed(seed))
        state.student(x).square().sum().backward()
        state.optimiser.step()

    state, other = conv(name, memory_format), conv(name, memory_format)
    for seed in range(3):
        step(state, seed)
    (tmp_path / "log").touch()
    with Writer(tmp_path / "checkpoint", ABOUT, tmp_path / "log") as checkpoints:
        checkpoints.save(3, 0.0, state)
    load(tmp_path / "checkpoint" / "00000003.json", other)
    for each in (state, other):
        step(each, 3)
    for mine, theirs in zip(state.student.parameters(), other.student.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_checkpoint_has_the_state_of_the_moment_it_was_asked_for(tmp_path):
    """Training goes on while the disk writes: what it changes meanwhile is not in the checkpoint."""
    state, before = trained(3), trained(3)
    (tmp_path / "log").touch()
    with Writer(tmp_path / "checkpoint", ABOUT, tmp_path / "log") as checkpoints:
        checkpoints.save(3, 0.0, state)
        with torch.no_grad():
            for parameter in state.student.parameters():
                parameter.zero_()
    assert load(tmp_path / "checkpoint" / "00000003.json", state).iteration == 3
    assert equal(state, before)


@pytest.mark.parametrize("saves", [1, 2])
def test_errors_of_the_writing_thread_are_raised(saves, tmp_path):
    """By the next checkpoint, or at the end; the first is waited for."""
    (tmp_path / "log").touch()
    succeeded = 0
    with (  # noqa: PT012 (which of them raises is the question)
        pytest.raises(UserError, match="cannot be written"),
        Writer(tmp_path / "checkpoint", ABOUT, tmp_path / "log") as checkpoints,
    ):
        checkpoints.save(0, 0.0, trained(1))
        assert len(checkpoint.list_complete(tmp_path / "checkpoint")) == 1
        shutil.rmtree(tmp_path / "checkpoint")
        (tmp_path / "checkpoint").write_text("in the way")
        for iteration in range(1, saves + 1):
            checkpoints.save(iteration, 0.0, trained(1))
            succeeded += 1
    assert succeeded == 1


def test_the_last_two_checkpoints_are_kept(tmp_path):
    """Both files of each; and the same tensors give the same bytes, however long they took."""
    for iteration in (10, 20, 30):
        write(tmp_path / "checkpoint", iteration, trained(2))
    names = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
    assert names == ["00000020.json", "00000020.safetensors", "00000030.json", "00000030.safetensors"]
    assert len({path.read_bytes() for path in (tmp_path / "checkpoint").glob("*.safetensors")}) == 1


def test_the_manifest_describes_the_file_of_tensors(tmp_path):
    """Format, iteration, size and SHA-256, as other programs compute them; the tensors are those of the state."""
    state = trained(2)
    write(tmp_path / "checkpoint", 10, state)
    manifest = json.loads((tmp_path / "checkpoint" / "00000010.json").read_text())
    data = (tmp_path / "checkpoint" / "00000010.safetensors").read_bytes()
    assert (manifest["format"], manifest["iteration"], manifest["bytes"]) == (3, 10, len(data))
    assert manifest["sha256"] == hashlib.sha256(data).hexdigest()
    loaded, saved = safetensors.torch.load(data), tensors_of(state)
    assert loaded.keys() == saved.keys()
    assert all(torch.equal(loaded[name], saved[name]) for name in loaded)


def test_a_manifest_under_the_name_of_another_iteration_is_refused(tmp_path):
    write(tmp_path / "checkpoint", 10, trained(2))
    for suffix in (".json", ".safetensors"):
        (tmp_path / "checkpoint" / f"00000010{suffix}").rename(tmp_path / "checkpoint" / f"00000030{suffix}")
    with pytest.raises(Damaged, match="it is of iteration 10"):
        load(tmp_path / "checkpoint" / "00000030.json", trained(1))


def test_a_run_whose_checkpoints_are_all_damaged_stops(tmp_path):
    """It does not start over by itself; resumed once more, it does."""
    folder, said = tmp_path / "checkpoint", []
    for iteration in (10, 20):
        write(folder, iteration, trained(2))
        (folder / f"{iteration:08d}.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="all 2 checkpoints are damaged"):
        restore_newest(folder, trained(1), said.append)
    assert len(said) == 2
    assert restore_newest(folder, trained(1), said.append) is None


def test_a_checkpoint_of_another_model_is_refused_and_left_alone(tmp_path):
    """It is not damaged, and therefore not set aside."""
    write(tmp_path / "checkpoint", 10, trained(2))
    with pytest.raises(UserError, match="of another model"):
        restore_newest(tmp_path / "checkpoint", conv("adam", torch.contiguous_format), print)
    assert len(checkpoint.list_complete(tmp_path / "checkpoint")) == 1


def test_a_state_that_is_not_finite_is_not_saved(tmp_path):
    """Weights or moments: the checkpoint before it stays the newest."""
    state = trained(2)
    write(tmp_path / "checkpoint", 10, state)
    with torch.no_grad():
        next(state.student.parameters())[0, 0] = float("nan")
    with pytest.raises(UserError, match=r"student.layers.0.weight is not finite"):
        write(tmp_path / "checkpoint", 20, state)
    assert [path.name for path in checkpoint.list_complete(tmp_path / "checkpoint")] == ["00000010.json"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    """Temporary files, and tensors whose manifest was not written yet or already removed."""
    folder = tmp_path / "checkpoint"
    write(folder, 10, trained(2))
    write(folder, 20, trained(2))
    (folder / "00000020.json").unlink()
    (folder / ".00000020.json.77.tmp").write_text("{")
    checkpoint.remove_incomplete(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["00000010.json", "00000010.safetensors"]


def test_a_model_with_a_flipped_bit_is_refused(tmp_path):
    """Anywhere in the file: header, metadata or weights."""
    path = tmp_path / "model.safetensors"
    save_model(path, TrainedModel(Perceptron(2), ("a", "b"), ()), Model(name="mlp"))
    content = path.read_bytes()
    assert load_model(path, CPU).classes == ("a", "b")
    for bit in range(0, 8 * len(content), 8 * len(content) // 150):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"model.safetensors"):
            load_model(path, CPU)


def test_a_locked_folder_is_refused_and_a_left_over_lock_file_is_not(tmp_path):
    """The message names the process; the file alone locks nothing, and is removed in the end."""
    with lock.hold(tmp_path):
        with pytest.raises(UserError, match=f"process {os.getpid()} on "), lock.hold(tmp_path):
            pass
        assert (tmp_path / ".lock").exists()
    assert not (tmp_path / ".lock").exists()
    (tmp_path / ".lock").write_text(f"process 1 on {platform.node()}")
    with lock.hold(tmp_path):
        pass


def test_a_file_is_replaced_as_a_whole(tmp_path):
    """A link in its place is replaced and not followed; so is one that waits under the temporary name."""
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f".a.{os.getpid()}.tmp").symlink_to(tmp_path / "elsewhere")
    atomic.write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "elsewhere").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "elsewhere"]


def test_too_little_room_is_reported_in_bytes(tmp_path):
    """More than any disk has."""
    with pytest.raises(UserError, match=rf"{2**70} bytes are needed .*, and \d+ are free"):
        atomic.require_room(tmp_path, 2**70, 1)
    assert list(tmp_path.iterdir()) == []


def test_out_of_memory_names_batch_and_crop():
    """On a GPU, and in the words that PyTorch has for the CPU; other errors stay as they are."""
    config = recipe("streets")
    with (
        pytest.raises(UserError, match=r"8 labelled and 8 unlabelled images in crops of 64×128"),
        memory.explain_out_of_memory(config),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with (
        pytest.raises(UserError, match=r"--train.batch-unlabelled or --jitter.crop"),
        memory.explain_out_of_memory(config),
    ):
        torch.empty(2**58)
    with pytest.raises(RuntimeError, match="must match the size"), memory.explain_out_of_memory(config):
        torch.zeros(2) + torch.zeros(3)
    with pytest.raises(RuntimeError, match="new thread"), memory.explain_out_of_memory(config):
        raise RuntimeError("can't start new thread")  # where too many run, whatever the batch
    assert (memory.available(CPU) or 2**40) > 2**20


def test_a_run_that_needs_more_memory_than_there_is_is_refused():
    """A checkpoint of 2⁶⁰ bytes."""
    with pytest.raises(UserError, match="MiB more memory on cpu"):
        memory.require(Perceptron(2), 2**60, recipe("moons"), CPU)


def test_a_header_that_announces_too_much_is_not_parsed(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes((2**40).to_bytes(8, "little") + b"{}")
    began = time.monotonic()
    with pytest.raises(UserError, match="its header would have"), tensors.open_file(path):
        pass
    assert time.monotonic() - began < 1


def test_bytes_needed_are_those_of_a_checkpoint(tmp_path: Path):
    """But for the header, of a few kilobytes."""
    state = trained(2)
    write(tmp_path / "checkpoint", 10, state)
    size = (tmp_path / "checkpoint" / "00000010.safetensors").stat().st_size
    assert bytes_needed(state) <= size <= bytes_needed(state) + 2**13


def test_packed_tensors_are_a_file_of_safetensors():
    """To the byte what its own library writes: of every type, of no numbers and of one, under any name."""
    made = {f"{kind} ä\n": torch.arange(3).to(kind) for kind in tensors.WRITTEN}
    made |= {"none": torch.empty(0, 2), "one": torch.tensor(1.5), "laid out": torch.rand(2, 3, 4, 5).mT}
    oracle = safetensors.torch.save(
        {name: tensor.contiguous() for name, tensor in made.items()}, {"oneway": json.dumps({"a": "é"})}
    )
    assert tensors.pack(made, {"a": "é"}).data == oracle


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_a_single_number_that_is_not_finite_is_found(tmp_path, value, kind):
    """Wherever it is; no file is written."""
    content = tensors.pack({"large": torch.rand(3, 1000).to(kind), "counter": torch.tensor(3)}, {})
    checkpoint.write(tmp_path / "checkpoint", 1, 1.0, content, ABOUT)
    content["large"][1, 617] = value
    with pytest.raises(UserError, match="At iteration 2, large is not finite"):
        checkpoint.write(tmp_path / "checkpoint", 2, 1.0, content, ABOUT)
    assert len(list((tmp_path / "checkpoint").iterdir())) == 2
