"""Methods train on every kind of data: a few iterations each. `golden` trains all of them on street scenes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from rich.console import Console

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.config import Config
from oneway.config.recipes import configured, recipe
from oneway.methods import METHODS
from oneway.runs import open_run
from oneway.tools.reproduce.two_moons import PANELS, draw_figure, panel_config
from oneway.tools.train import train

SEGMENTATION = {
    "data": {"size": (32, 64), "images": 16},
    "jitter": {"crop": (32, 48)},  # not the images' size, so that nothing can mistake one for the other
    "model": {"width": 0.125},
    "labels": "4",
    "train": {"iterations": 3, "batch_labelled": 4, "batch_unlabelled": 4, "log_every": 1, "device": "cpu"},
}


def changed(name: str, **changes: object) -> Config:
    return configured(name, changes, source="test")


def losses(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "supervised" in line]


def trained(config: Config, folder: Path) -> dict[str, object]:
    """The summary of a run whose losses are finite, and whose consistency loss is there exactly if it should be."""
    summary = train(config, folder, resume=False, console=Console(quiet=True))
    for line in losses(folder):
        assert np.isfinite(line["supervised"])
        assert ("consistency" in line) != METHODS[config.method].supervised
    return summary


@pytest.mark.parametrize(
    ("method", "variant"),
    [
        ("supervised", "1w-ct"),
        ("supervised-phtps-aug", "1w-ct"),
        ("simple-phtps", "1w-ct"),
        ("simple-phtps", "2w-p2"),
        ("simple-cutmix", "1w-ct"),
        ("mt-phtps", "1w-ct"),
        ("vat-entmin", "1w-ct"),
    ],
)
def test_cifar10(method, variant, tiny_cifar, tmp_path):
    """Classification of images; labels are shared equally among the classes."""
    settings = {"batch_labelled": 4, "batch_unlabelled": 6, "iterations": 2, "log_every": 1, "device": "cpu"}
    changes = {"data": {"path": tiny_cifar}, "labels": "20", "method": method, "variant": variant, "train": settings}
    summary = trained(changed("cifar10", **changes), tmp_path / "run")
    assert summary["metric"] == "accuracy"
    labelled = json.loads((tmp_path / "run/split.json").read_text())["labelled"]
    assert sorted(int(name.removeprefix("train-")) % 10 for name in labelled) == sorted([*range(10)] * 2)


def test_an_adversary_without_strength_costs_nothing(tiny_cifar, tmp_path):
    """VAT compares predictions of one network in one mode: the search assumes that they agree where r is 0."""
    settings = {"batch_labelled": 4, "batch_unlabelled": 6, "iterations": 2, "log_every": 1, "device": "cpu"}
    changes = {"data": {"path": tiny_cifar}, "labels": "20", "method": "vat-entmin", "train": settings}
    trained(changed("cifar10", **changes, perturb={"adversarial_norm": 0.0}), tmp_path / "run")
    assert all(abs(line["consistency"]) < 1e-6 for line in losses(tmp_path / "run"))


@pytest.mark.slow
def test_cifar10_is_learnt(tiny_cifar, tmp_path):
    """Colours tell the classes apart: 40 iterations with 50 labels are enough for most of them."""
    settings = {"batch_labelled": 20, "batch_unlabelled": 40, "iterations": 40, "device": "cpu"}
    changes = {
        "data": {"path": tiny_cifar},
        "labels": "50",
        "method": "supervised",
        "optimiser": {"learning_rate": 0.05},
        "train": settings,
    }
    summary = trained(changed("cifar10", **changes), tmp_path / "run")
    assert summary["value"] > 50


def test_a_warm_up_leaves_the_unlabelled_images_out(tmp_path):
    """No consistency loss before its time, one afterwards."""
    config = changed("streets", **configuration.merge(SEGMENTATION, {"train": {"consistency_from": 0.5}}))
    train(config, tmp_path / "run", resume=False, console=Console(quiet=True))
    assert ["consistency" in line for line in losses(tmp_path / "run")] == [False, False, True]


def test_bfloat16_trains_close_to_float32(tmp_path):
    """Losses of the first iterations agree within the noise of a shorter mantissa; weights stay float32."""
    found = {}
    for precision in ("float32", "bfloat16"):
        config = changed("streets", **configuration.merge(SEGMENTATION, {"train": {"precision": precision}}))
        train(config, tmp_path / precision, resume=False, console=Console(quiet=True))
        found[precision] = [line["supervised"] for line in losses(tmp_path / precision)]
    assert found["bfloat16"] == pytest.approx(found["float32"], rel=0.05)
    assert found["bfloat16"] != found["float32"]
    weights = safetensors.torch.load_file(tmp_path / "bfloat16/model.safetensors")
    assert all(tensor.dtype != torch.bfloat16 for tensor in weights.values())


def test_two_moons_and_their_figure(tmp_path):
    """All four panels of the figure, from short runs: each has its title, and 154 + 6 points."""
    folders = {panel: tmp_path / panel for panel in PANELS}
    for panel, folder in folders.items():
        config = panel_config(panel, seed=0)
        train(config.changed(train={"iterations": 30}), folder, resume=False, console=Console(quiet=True))
    figure = draw_figure(folders)
    assert len(figure.axes) == 4
    for axes, (panel, (title, _, _)) in zip(figure.axes, PANELS.items(), strict=True):
        assert title in axes.get_title()
        assert panel in axes.get_title()
        points = [len(collection.get_offsets()) for collection in axes.collections[-3:]]
        assert points == [154, 3, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"variant": "2w-c1", "method": "mt-phtps"}, "mean teacher"), ({"method": "mt-phtp"}, "unknown value 'mt-phtp'")],
)
def test_a_configuration_that_was_changed_unchecked_is_checked_before_training(changes, message, tmp_path):
    """Values and what makes no sense together, whatever way they came."""
    with pytest.raises(UserError, match=message):
        train(recipe("streets").changed(**changes), tmp_path / "run", resume=False, console=Console(quiet=True))
    assert not (tmp_path / "run").exists()


def test_entropy_alone_learns_from_unlabelled_images(tmp_path):
    """With α = 0 the entropy term of `vat-entmin` still counts; with neither it is supervised training."""
    curves = {}
    for entropy in (0.0, 1.0):
        changes = {"alpha": 0.0, "entropy": entropy, "iterations": 3, "log_every": 1}
        config = recipe("moons", "vat-entmin").changed(train=changes)
        folder = tmp_path / str(entropy)
        train(config, folder, resume=False, console=Console(quiet=True))
        curves[entropy] = [line["supervised"] for line in open_run(folder).metrics() if "supervised" in line]
    assert curves[0.0][0] == curves[1.0][0]
    assert curves[0.0][1:] != curves[1.0][1:]


@pytest.mark.slow
def test_the_clean_teacher_finds_the_moons(tmp_path):
    """3,000 steps from six labels: the clean teacher is far above no consistency, as in the paper's figure."""
    values = {}
    for panel in ("none", "1w-ct"):
        config = panel_config(panel, seed=0)
        folder = tmp_path / panel
        values[panel] = train(
            config.changed(train={"iterations": 3000}), folder, resume=False, console=Console(quiet=True)
        )["value"]
    assert values["1w-ct"] > values["none"] + 5
