"""Facts about half precision on a CPU: what is chosen, how far it leads, and that a run keeps it."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import oneway
from oneway import models
from oneway.cli import app
from oneway.common.errors import UserError
from oneway.data.dataset import Samples
from oneway.data.streets import render
from oneway.draws import draw
from oneway.engine.start import BFLOAT16_INSTRUCTIONS, fast_precision, plan_of, training_state
from oneway.engine.step import in_bfloat16, step
from oneway.engine.store import Store
from oneway.methods import METHODS
from oneway.tools import quickstart as quickstart_module
from oneway.tools import train as train_module
from small_runs import QUIET, small_streets

CPU = torch.device("cpu")


def changed(precision: str, **train: object) -> object:
    return small_streets(train={"precision": precision, **train})


@pytest.mark.parametrize(
    ("precision", "engine", "last"), [("auto", "auto", False), ("bfloat16", "auto", True), ("bfloat16", "plain", False)]
)
def test_half_precision_has_the_layout_of_fast_convolutions(precision, engine, last):
    """Single precision, and the reference, keep theirs: they are the same to the bit as ever."""
    config = changed(precision, engine=engine)
    state = training_state([models.build(config.model, 9, 0)], (), config, CPU)
    weight = state.student.encoder.net.layer1[0].conv1.weight
    assert weight.is_contiguous(memory_format=torch.channels_last) == last


def test_half_precision_learns_the_same(tmp_path):
    """The losses of the first iterations differ from those in single precision, by about eight bits."""
    losses = {}
    for precision in ("float32", "bfloat16"):
        train_module.train(changed(precision, log_every=1), tmp_path / precision, False, QUIET)
        lines = map(json.loads, (tmp_path / precision / "metrics.jsonl").read_text().splitlines())
        losses[precision] = torch.tensor([line["supervised"] for line in lines if "supervised" in line])
    exact, half = losses.values()
    assert not torch.equal(exact, half)
    torch.testing.assert_close(half, exact, rtol=0.04, atol=0)


def test_half_precision_resumes_to_the_bit(tmp_path, monkeypatch):
    """Weights come back in the layout that they had."""
    config = changed("bfloat16", checkpoint_every=2)
    train_module.train(config, tmp_path / "whole", False, QUIET)
    done = iter(range(3))
    monkeypatch.setattr(train_module, "require_margin", lambda: next(done))
    with pytest.raises(StopIteration):
        train_module.train(config, tmp_path / "run", False, QUIET)
    monkeypatch.undo()
    train_module.train(config, tmp_path / "run", True, QUIET)
    whole, resumed = (
        safetensors.torch.load_file(tmp_path / name / "checkpoint" / "00000004.safetensors")
        for name in ("whole", "run")
    )
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize("able", [(), BFLOAT16_INSTRUCTIONS[:1], BFLOAT16_INSTRUCTIONS[1:]])
def test_half_precision_is_for_processors_that_have_it(able, monkeypatch):
    """Others would take longer."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(able, True), raising=False)
    assert fast_precision(CPU) == ("bfloat16" if able else "auto")
    assert fast_precision(torch.device("cuda")) == "auto"


@pytest.mark.parametrize("able", [(), BFLOAT16_INSTRUCTIONS])
@pytest.mark.parametrize("load", [0.0, 99.0])
def test_the_quickstart_is_the_same_on_every_cpu(able, load, tmp_path, monkeypatch):
    """Whatever its processor has, and whatever else it is doing: what is learnt differs with the precision."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(able, True), raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    configs = []
    monkeypatch.setattr(quickstart_module, "compare", lambda given, *_: configs.extend(given))
    quickstart_module.quickstart(tmp_path, 0, QUIET)
    assert [in_bfloat16(config, CPU) for config in configs] == [False, False]


def first_losses(method: str, precision: str, store: Store) -> dict[str, float]:
    """Of one step from the same weights and draws."""
    batches = {"batch_labelled": 4, "batch_unlabelled": 4, "confidence": 0.0}
    config = small_streets(method=method, train={"precision": precision, **batches})
    students = [models.build(config.model, 9, seed) for seed in range(METHODS[method].students)]
    state = training_state(students, (), config, CPU, class_weights=torch.ones(9))
    plan = plan_of(config, range(4), range(8), network=students[0])
    return {name: float(loss) for name, loss in step(state, store, draw(plan, 0), config).items()}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_in_half_precision(method):
    """Losses are those of single precision, but for rounding, and are added up in single precision themselves."""
    torch.manual_seed(0)
    pixels = torch.randint(256, (8, 32, 64, 3), dtype=torch.uint8).numpy()
    store = Store.hold(Samples.stacked(tuple("abcdefgh"), pixels, pixels[..., 0] % 9), CPU)
    exact, half = (first_losses(method, precision, store) for precision in ("float32", "bfloat16"))
    assert half == pytest.approx(exact, rel=0.05, abs=0.002)
    assert half["supervised"] != exact["supervised"]
    assert all(float(torch.tensor(loss).bfloat16()) != loss for loss in half.values() if loss)


def test_predictions_in_half_precision_are_for_those_who_ask(trained_run, tmp_path):
    """On a CPU. Probabilities are off by rounding, in one pass and in tiles, and the results say which they are."""
    image = render(0, 0, 64, 160)[0]
    usual, exact, half = (oneway.load(trained_run, "cpu", precision=name) for name in ("auto", "float32", "bfloat16"))
    whole = [model.probabilities(image) for model in (usual, exact, half)]
    assert np.array_equal(whole[0], whole[1])
    assert 0 < abs(whole[2] - whole[1]).max() < 0.02
    tiled = [model.predict(image, tile=(64, 64)).confidence for model in (exact, half)]
    assert 0 < abs(tiled[1] - tiled[0]).max() < 0.02
    Image.fromarray(image).save(tmp_path / "a.png")
    for name in ("auto", "bfloat16"):
        command = [
            "predict",
            str(trained_run),
            str(tmp_path / "a.png"),
            "--out",
            str(tmp_path / name),
            "--device",
            "cpu",
        ]
        with pytest.raises(SystemExit):
            app([*command, "--precision", name])
        said = json.loads((tmp_path / name / "predictions.json").read_text())["precision"]
        assert said == {"auto": "float32"}.get(name, name)
    with pytest.raises(UserError, match=r"precision 'half'.*bfloat16"):
        oneway.load(trained_run, precision="half")
