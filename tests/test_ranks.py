"""The number of processes does not change what is learnt: shares of a batch make the step of the whole batch."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oneway import data, models
from oneway.common.terms import IGNORE
from oneway.config import Config
from oneway.draws import draw
from oneway.engine import step
from oneway.engine.balance import class_weights
from oneway.engine.capture import choose_step
from oneway.engine.optim import set_learning_rate
from oneway.engine.ranks import Ranks
from oneway.engine.start import plan_of, training_state
from oneway.engine.store import Store
from oneway.methods import METHODS
from oneway.methods.interface import Pair
from oneway.models.seed import seed_cpu
from oneway.ops import collective, losses, shared_norm
from own_method import remembering
from ranks import in_ranks
from small_runs import small_streets

ITERATIONS = 20
BATCH = {"batch_labelled": 8, "batch_unlabelled": 8}
DTYPES = (torch.float64, torch.float32)
RATE = 2e-4
"""For single precision: at higher ones, twenty steps make rounding errors a thousand times as large."""

CASES: dict[str, dict[str, Any]] = {
    "simple-phtps": {},
    "mt-phtps": {},
    "fixmatch": {"train": {"confidence": 0.3}},
    "vat-entmin": {"jitter": {"scale": (1.0, 1.5)}},
    "mt-colour-cutmix-drop": {},
}
"""Those that a run is most likely to have: no threshold, a mean teacher, a threshold, a search, one pass for all."""

OTHERS: dict[str, dict[str, Any]] = {
    "supervised": {"train": {"balance": "dice"}},
    "supervised-colour-cutmix-aug": {},
    "mt-cutmix-l2": {"train": {"confidence": 0.3}},
    "classmix": {"train": {"confidence": 0.3}},
    "cps": {"train": {"confidence": 0.0}},
    "fixmatch-ema": {"train": {"confidence": 0.3}},
    "unimatch-v2": {"train": {"confidence": 0.3}},
    "augseg": {"train": {"confidence": 0.3}},
    "cac": {"train": {"confidence": 0.0}},
}
"""The rest, each for something that it needs of the whole batch."""


@lru_cache
def world() -> tuple[Any, int]:
    """Scenes of which some have no label at all, some few and some all: ignored pixels are spread unevenly."""
    dataset = data.load(small_streets().data)
    samples = dataset.read("train")
    random = np.random.default_rng(0)
    labels = np.array(samples.labels[:])
    for item, share in enumerate(random.choice([0.0, 0.1, 0.5, 1.0], len(samples))):
        begin, size = samples.starts[item], samples.sizes[item].prod()
        labels[begin : begin + size][random.random(size) < share] = IGNORE
    # Where neighbours are equal, rounding decides which of them a max-pool takes, and VAT's directions tell them apart:
    # no flat surfaces, and for VAT no grey beyond the border either.
    pixels = samples.pixels[:] ^ random.integers(32, size=samples.pixels.shape, dtype=np.uint8)
    return replace(samples, labels=labels, pixels=pixels), len(dataset.classes)


def config_of(method: str, changes: dict[str, Any], rate: float) -> Config:
    train = {**METHODS[method].train, **BATCH, **changes.get("train", {})}
    jitter = {**small_streets().jitter.model_dump(), **changes.get("jitter", {})}
    return small_streets(
        method=method, train=train, jitter=jitter, optimiser={"name": "sgd", "learning_rate": rate, "momentum": 0.9}
    )


def in_dtype(pair: Pair, dtype: torch.dtype) -> Pair:
    return pair._replace(first=pair.first.to(dtype), second=pair.second.to(dtype))


def trained(
    ranks: Ranks,
    method: str,
    changes: dict[str, Any],
    dtype: torch.dtype,
    iterations: int,
    rate: float | None = None,
) -> dict[str, Any]:
    """Losses of every iteration, images of every iteration, and every number of the networks in the end."""
    rate = rate or (RATE if dtype == torch.float32 else 0.05)
    (samples, classes), config, cpu = world(), config_of(method, changes, rate), torch.device("cpu")
    labelled = list(range(12))
    images = step.jitter_inputs
    pairs = step.jitter_pairs
    step.jitter_inputs = lambda *arguments: images(*arguments).to(dtype)
    step.jitter_pairs = lambda *arguments: in_dtype(pairs(*arguments), dtype)
    networks = []
    for which in range(METHODS[method].students):
        with seed_cpu(which):
            network = models.build(config.model, classes, seed=which)
        networks.append(network.to(dtype))
    weights = class_weights(samples, labelled, classes) if config.train.balance == "frequency" else None
    state = training_state(networks, (), config, cpu, class_weights=weights, classes=classes)
    for parameter in (each for head in state.models.heads for each in head.to(dtype).parameters()):
        state.optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    plan = plan_of(config, labelled, range(len(samples)), network=state.student)
    advance = choose_step(state, Store.hold(samples, cpu), config, print, ranks)
    values, seen = [], []
    for iteration in range(iterations):
        set_learning_rate(state.optimiser, "constant", iteration, iterations)
        share = ranks.share(draw(plan, iteration))
        measured = advance(share, config.train.alpha)
        values.append({name: float(value) for name, value in measured.items()})
        seen.append((share.labelled.item.tolist(), share.unlabelled.item.tolist()))
    step.jitter_inputs, step.jitter_pairs = images, pairs
    everything = {**nn.ModuleList(state.models.learning).state_dict(prefix="learning."), "skips": state.skips}
    everything |= nn.ModuleList(state.models.teachers).state_dict(prefix="teacher.")
    return {"losses": values, "seen": seen, "state": {name: each.numpy() for name, each in everything.items()}}


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest, of all losses and all numbers of the networks; of variances above 1, by their size."""
    found = [abs(a[name] - b[name]) for a, b in zip(one["losses"], other["losses"], strict=True) for name in a]
    for name, value in one["state"].items():
        found.append(float(np.abs(value - other["state"][name]).max(initial=0) / np.abs(value).max(initial=1)))
    return max(found)


def compare(method: str, changes: dict[str, Any], dtype: torch.dtype, of: int, iterations: int = ITERATIONS) -> float:
    """How far several processes are from one, after having seen the same images."""
    alone = trained(Ranks(), method, changes, dtype, iterations)
    together = in_ranks(of, trained, method, changes, dtype, iterations)
    for rank in together[1:]:
        assert difference(rank, together[0]) == 0, "processes of one run have drifted apart"
    for iteration, seen in enumerate(alone["seen"]):
        for kind, items in enumerate(seen):
            assert sorted(items) == sorted(item for rank in together for item in rank["seen"][iteration][kind])
    assert alone["state"]["skips"].tolist() == [0, 0]
    return difference(alone, together[0])


@pytest.mark.parametrize("method", ["vat-entmin", "mt-colour-cutmix-drop"])
def test_two_processes_learn_what_one_does(method):
    """In double precision, for a few steps; all of it, and more, is in the slow test below."""
    assert compare(method, CASES[method], torch.float64, of=2, iterations=3) < 1e-9


def test_what_a_method_remembers_is_the_same_in_all_processes():
    """A method of the user's own: its threshold, and a loss that it divides itself."""
    with patch.dict(METHODS, {"two-views": remembering()}):
        assert compare("two-views", {}, torch.float64, of=2, iterations=3) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("of", [2, 4])
@pytest.mark.parametrize("method", CASES | OTHERS)
def test_the_number_of_processes_does_not_change_what_is_learnt(method, of):
    """The same images, losses, weights and statistics of batch norm, with ignored pixels spread unevenly.

    Sums are rounded in another order, which steps amplify: by 4e-11 mostly, and once by 1.5e-9.
    """
    of = 2 if method == "supervised-colour-cutmix-aug" else of  # which pairs images in quarters of a batch
    assert compare(method, (CASES | OTHERS)[method], torch.float64, of) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("of", [2, 4])
@pytest.mark.parametrize("method", CASES)
def test_in_single_precision_only_rounding_tells_processes_from_one(method, of):
    """To 1e-4; or, where rounding grows that takes one process further from double precision, to no more than that."""
    changes = CASES[method]
    apart = compare(method, changes, torch.float32, of)
    if apart >= 1e-4:
        exact, single = (trained(Ranks(), method, changes, dtype, ITERATIONS, RATE) for dtype in DTYPES)
        assert apart < 3 * difference(exact, single)


def own_count(count: Tensor) -> Tensor:
    """As if every share had the same number of pixels that count."""
    group = collective.current()
    return count if group is None else count * group.size


def own_statistics(self: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return function(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["the count of all", "the statistics of all"])
def test_without_what_is_shared_the_processes_would_learn_something_else(missing, monkeypatch):
    """That is what the tests above would notice."""
    if missing == "the count of all":
        monkeypatch.setattr(losses, "total", own_count)
        monkeypatch.setattr(sys.modules["oneway.ops.cross_entropy"], "total", own_count)
    else:
        monkeypatch.setattr(shared_norm._SharedNorms, "__torch_function__", own_statistics)
    with pytest.raises(AssertionError, match=r"drifted apart|< 1e-09"):
        assert compare("mt-colour-cutmix-drop", {}, torch.float64, of=2, iterations=2) < 1e-9
