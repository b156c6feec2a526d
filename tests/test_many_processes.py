"""Whole runs of several processes: what they write, where they stop, and what happens when one of them fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import nn

from oneway import data, models, ops
from oneway.engine import optim, watchdog
from oneway.engine.ranks import Ranks
from oneway.methods import METHODS, Method, supervised
from oneway.methods.interface import Batch, Losses, Settings
from oneway.models.roles import Models
from oneway.tools import evaluate, opening
from oneway.tools.train import train
from ranks import in_ranks
from reliability.guards import write_data
from small_runs import QUIET, small_streets

SMALL = {"batch_labelled": 4, "batch_unlabelled": 4, "iterations": 6, "log_every": 1, "validate_every": 3}


def config(**changes: Any) -> Any:
    return small_streets(**{"train": SMALL, **changes})


def trains(ranks: Ranks, out: Path, changes: dict[int, dict[str, Any]], resume: bool, stop: int | None) -> str:
    """Trains, each process with changes of its own; the last of them gets a signal in an iteration. What came of it."""
    usual = optim.warm_up_at

    def interrupted(settings: Any, iteration: int) -> float:
        if iteration == stop and ranks.rank == ranks.world_size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return usual(settings, iteration)

    optim.warm_up_at = interrupted
    try:
        return f"{train(config(**changes.get(ranks.rank, {})), out, resume, QUIET)['iterations']} iterations"
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        optim.warm_up_at = usual


def together(of: int, out: Path, resume: bool = False, stop: int | None = None, **of_second: Any) -> list[str]:
    return in_ranks(of, trains, out, {1: of_second}, resume, stop)


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["supervised"] for line in lines if "supervised" in line]


def tensors(run: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(sorted((run / "checkpoint").glob("*.safetensors"))[-1])


def test_two_processes_are_stopped_by_a_signal_to_one_and_continued_by_one(tmp_path):
    """All stop at one iteration, with a checkpoint; the folder says how many there were, and that there is one now."""
    assert trains(Ranks(), tmp_path / "alone", {}, resume=False, stop=None) == "6 iterations"
    said = together(2, tmp_path / "run", stop=1)
    assert said[0].startswith("Interrupted: Stopped after ")
    assert said[1] == "SystemExit: 143"
    assert trains(Ranks(), tmp_path / "run", {}, resume=True, stop=None) == "6 iterations"
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=1e-3)
    noted = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert [stretch.get("processes", 1) for stretch in noted["stretches"]] == [2, 1]
    assert len(noted["hosts"]) == 2


def trains_and_asks_for_a_group(ranks: Ranks, out: Path) -> tuple[str, bool]:
    return trains(ranks, out, {}, False, None), torch.distributed.is_initialized()


def test_the_only_process_of_torchrun_makes_no_group(tmp_path):
    """It trains to the bit as if nobody had started it; exchanges are counted under torchrun itself."""
    assert trains(Ranks(), tmp_path / "alone", {}, resume=False, stop=None) == "6 iterations"
    assert in_ranks(1, trains_and_asks_for_a_group, tmp_path / "run") == [("6 iterations", False)]
    alone, found = tensors(tmp_path / "alone"), tensors(tmp_path / "run")
    assert alone.keys() == found.keys()
    assert all(torch.equal(alone[name], found[name]) for name in alone)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {**SMALL, "batch_labelled": 3}}, "--train.batch-labelled 3 does not divide among 2 processes"),
        ({"method": "mt-cutmix", "train": {**SMALL, "batch_unlabelled": 2}}, "use a multiple of 4, or another number"),
        ({"train": {**SMALL, "balance": "ohem"}}, "ohem looks for the hardest pixels of a whole batch"),
    ],
)
def test_what_cannot_be_shared_out_is_refused_before_anything_is_read(changes, message, tmp_path):
    """With batch and number of processes."""
    assert message in " ".join(in_ranks(2, trains, tmp_path / "run", {0: changes, 1: changes}, False, None))
    assert not (tmp_path / "run").exists()


class Certainty(nn.Module):
    """What a method remembers of its teacher."""

    def __init__(self, student: nn.Module, classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("iteration", torch.zeros((), dtype=torch.int64))


def remembers(models: Models, batch: Batch, settings: Settings, of_all: bool) -> Losses:
    (memory,) = models.heads
    yield from supervised.losses(models, batch, settings)
    certainty = models.teacher(batch.unlabelled()).softmax(dim=1).amax(dim=1)
    memory.mean.lerp_(ops.mean_of_all(certainty) if of_all else certainty.mean(), 0.1)
    memory.iteration += 1


@pytest.mark.parametrize("of_all", [True, False])
def test_processes_that_remember_different_things_are_refused(of_all, tmp_path):
    """A checkpoint would have what the first remembers; the message has the buffer and the way out."""
    with patch.dict(METHODS, {"remembers": Method(partial(remembers, of_all=of_all), head=Certainty)}):
        said = in_ranks(2, trains, tmp_path / "run", {rank: {"method": "remembers"} for rank in (0, 1)}, False, None)
    if of_all:
        assert said == ["6 iterations"] * 2
    else:
        assert "not the same in all processes: mean. Change it by values" in " ".join(said)
        assert not list((tmp_path / "run" / "checkpoint").glob("*"))


def test_processes_that_differ_are_refused_and_the_one_that_does_is_named(tmp_path):
    """In settings or data; nothing is written."""
    for changes, difference in (
        ({"seed": 5}, r"has seed 5, and process 0 on \S+ has 0"),
        ({"data": {"size": (32, 64), "images": 15}}, r"has data.images 15, and process 0 on \S+ has 16"),
    ):
        said = " ".join(together(2, tmp_path / "run", **changes))
        assert re.search(rf"Process 1 of 2 on \S+ {difference}", said), said
    assert not (tmp_path / "run").exists()


def trains_where_it_is(ranks: Ranks, place: Path, version: str, out: Path) -> str:
    """Each process in a folder of its own, as on a computer of its own; the second may have another version."""
    os.chdir(place / str(ranks.rank))
    usual = opening.__version__
    opening.__version__ = version if ranks.rank else usual
    here = Path("/proc/self/cwd")  # one name for all, and another folder for each
    data = {"name": "folder", "path": here / "data", "cache": here / "cache"}
    try:
        return (
            f"{train(config(data=data, labels='all', method='supervised'), out, False, QUIET)['iterations']} iterations"
        )
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"


def test_copies_of_data_are_compared_by_their_content_and_programs_by_their_version(tmp_path):
    """Copies train together; a pixel that differs, or another version, is refused with the process that has it."""
    for rank in ("0", "1"):
        write_data(tmp_path / rank)
    said = in_ranks(2, trains_where_it_is, tmp_path, "0.0", tmp_path / "run")
    assert re.search(r"Process 1 of 2 on \S+ has oneway 0\.0, and process 0 on \S+ has ", " ".join(said)), said
    usual = opening.__version__
    altered = tmp_path / "1" / "data" / "images" / "3.png"
    whole = altered.read_bytes()
    Image.new("RGB", (64, 32)).save(altered)
    said = in_ranks(2, trains_where_it_is, tmp_path, usual, tmp_path / "run")
    assert re.search(r"Process 1 of 2 on \S+ has (training|validation) images ", " ".join(said)), said
    assert not (tmp_path / "run").exists()
    altered.write_bytes(whole)
    shutil.rmtree(tmp_path / "1" / "cache")  # which remembers the other one
    assert in_ranks(2, trains_where_it_is, tmp_path, usual, tmp_path / "run") == ["6 iterations"] * 2


def validates(ranks: Ranks) -> tuple[list[list[int]], int]:
    """The confusion matrix of a network that has learnt nothing, and how many images this process saw for it."""
    dataset, seen = data.load(small_streets().data), []
    network = models.build(small_streets().model, len(dataset.classes), seed=0)
    network.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    found = evaluate.evaluate(network, dataset.read("val"), len(dataset.classes), ranks=ranks)
    return found.confusion.tolist(), sum(seen)


def test_validation_is_shared_out(monkeypatch):
    """Each of two processes sees half of the images, and both have the scores of all."""
    monkeypatch.setattr(evaluate, "PIXELS_AT_ONCE", 2 * 32 * 64)
    (alone, images), *together = validates(Ranks()), *in_ranks(2, validates)
    assert [confusion for confusion, _ in together] == [alone, alone]
    assert sum(seen for _, seen in together) == images
    assert all(abs(seen - images / 2) <= 2 for _, seen in together)


def fails(ranks: Ranks, out: Path) -> str:
    """The second process meets a bug in its third iteration."""
    usual = optim.alpha_at
    optim.alpha_at = lambda settings, iteration, total: (
        usual(settings, iteration, total) if (ranks.rank, iteration) != (1, 2) else 1 // 0
    )
    try:
        train(config(), out, False, QUIET)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return "trained"


def test_an_error_of_one_process_ends_the_other_with_its_name(tmp_path):
    """At once; the other says who failed, and why."""
    begun = time.monotonic()
    first, second = in_ranks(2, fails, tmp_path / "run")
    assert second == "ZeroDivisionError: integer division or modulo by zero"
    assert re.search(r"process 1 of 2 on \S+ failed: ZeroDivisionError", first), first
    assert time.monotonic() - begun < 60


def hangs(ranks: Ranks, out: Path) -> str:
    """The second process does something else in its third iteration, and goes on living."""
    watchdog.STUCK = 2.0
    usual = optim.alpha_at

    def alpha_at(settings: Any, iteration: int, total: int) -> float:
        if (ranks.rank, iteration) == (1, 2):
            time.sleep(60)
        return usual(settings, iteration, total)

    optim.alpha_at = alpha_at
    train(config(), out, False, QUIET)
    return "trained"


def test_a_process_that_hangs_ends_all_with_its_name(tmp_path):
    """Also the one that hangs, which could not say so itself."""
    for said in in_ranks(2, hangs, tmp_path / "run"):
        assert re.search(r"process 1 of 2 on \S+ has made no progress for \d s, and the others wait for it", said), said
