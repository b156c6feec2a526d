"""Building or loading a model leaves the caller's random numbers alone, on the CPU and on GPUs."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

from oneway.config import Model
from oneway.models import build
from oneway.models.mlp import Perceptron
from oneway.models.seed import seed_cpu
from oneway.runs import TrainedModel, load_model, save_model
from oneway.tools.networks import prepare


def make_network(classes: int) -> nn.Module:
    """A network of the user's own, by the name `test_seed:make_network`."""
    return nn.Conv2d(3, classes, 3)


@pytest.fixture
def gpu_seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that the generators of all GPUs are given; PyTorch keeps them for later where there is no GPU."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    torch.manual_seed(5)
    assert seeds == [5]  # what this fixture watches is what PyTorch calls
    seeds.clear()
    return seeds


@pytest.mark.parametrize("model", [Model(name="mlp"), Model(factory="test_seed:make_network")], ids=["ours", "factory"])
def test_building_seeds_no_gpu_and_continues_the_caller_s_numbers(model: Model, gpu_seeds: list[int]) -> None:
    before = torch.get_rng_state()
    prepare(model, 2, seed=3, task="segmentation", crop=(16, 16))
    assert gpu_seeds == []
    assert torch.equal(torch.get_rng_state(), before)


def test_loading_seeds_no_gpu(tmp_path: Path, gpu_seeds: list[int]) -> None:
    model = Model(name="mlp")
    save_model(tmp_path / "m.safetensors", TrainedModel(build(model, 2, seed=0), ("a", "b"), ()), model)
    load_model(tmp_path / "m.safetensors", torch.device("cpu"))
    assert gpu_seeds == []


def test_weights_depend_on_the_seed_alone() -> None:
    def weights(seed: int) -> torch.Tensor:
        return nn.utils.parameters_to_vector(build(Model(name="mlp"), 2, seed).parameters())

    first = weights(7)
    torch.rand(10)
    assert torch.equal(weights(7), first)
    assert not torch.equal(weights(8), first)


def test_threads_that_build_at_the_same_time_have_the_weights_of_their_seeds() -> None:
    """Neither takes numbers of the other: each is as if it were alone."""
    alone = {seed: build(Model(name="mlp"), 2, seed).state_dict() for seed in (7, 8)}
    found: dict[int, dict[str, torch.Tensor]] = {}
    both_inside = threading.Barrier(2)

    def build_beside(seed: int) -> None:
        with seed_cpu(seed):
            with suppress(threading.BrokenBarrierError):  # the other one has to wait outside
                both_inside.wait(0.5)
            found[seed] = Perceptron(2).state_dict()

    threads = [threading.Thread(target=build_beside, args=(seed,)) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[seed][name], value) for seed in alone for name, value in alone[seed].items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_generator_of_a_gpu_is_left_alone() -> None:
    before = torch.cuda.get_rng_state()
    build(Model(name="mlp"), 2, seed=3)
    assert torch.equal(torch.cuda.get_rng_state(), before)
