"""Settings at the edge of what is allowed: they train, or are refused by name; none is a bug."""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from oneway.common.errors import UserError
from oneway.tools.train import train
from small_runs import QUIET, small_streets


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "supervised", "train": {"batch_labelled": 1}}, "--train.batch-labelled 2"),
        ({"method": "simple-phtps", "train": {"batch_unlabelled": 1}}, "--train.batch-unlabelled 2"),
    ],
)
def test_batch_norm_of_a_single_value_is_refused(changes, message, tmp_path):
    """With batch and crop, before a run has its folder."""
    with pytest.raises(UserError, match=rf"batch of 1 image, .* crop of 32×32, .*{message}"):
        train(small_streets(jitter={"crop": (32, 32)}, **changes), tmp_path / "run", resume=False, console=QUIET)
    assert not (tmp_path / "run").exists()


def test_a_batch_of_one_trains_where_its_crop_is_large_enough(tmp_path):
    """Two values are enough."""
    config = small_streets(method="supervised", train={"batch_labelled": 1, "iterations": 2})
    assert train(config, tmp_path / "run", resume=False, console=QUIET)["skipped_steps"] == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"jitter": {"padding": 2**15}},
        {"jitter": {"scale": (1 / 64, 64.0)}},
        {"jitter": {"crop": (33, 65), "padding": 2**15, "beyond": "mirror"}},
        {"perturb": {"deviation": 1000.0, "geometric": 1000.0}},
        {"perturb": {"photometric": 1000.0}},
        {"method": "mt-colour-cutmix", "perturb": {"colour": 1000.0}},
        {"train": {"alpha": 1e6}},
    ],
    ids=str,
)
def test_the_largest_values_train_or_stop_with_a_reason(changes, tmp_path):
    """Steps that are not finite are skipped; when all are, that is said."""
    with suppress(UserError):
        train(small_streets(**changes), tmp_path / "run", resume=False, console=QUIET)


def test_a_run_that_has_learnt_nothing_is_no_success(tmp_path, monkeypatch):
    """Every step of a run that is shorter than `train.most_skipped` was skipped: no model, no summary."""
    config = small_streets(method="supervised", optimiser={"learning_rate": 1e30}, model={"factory": "spoilt:network"})
    (tmp_path / "spoilt.py").write_text(
        "import torch\n"
        "class Spoilt(torch.nn.Conv2d):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) * (float('inf') if len(x) == 2 and Spoilt.armed else 1)\n"
        "Spoilt.armed = False\n"
        "def network(classes):\n"
        "    return Spoilt(3, classes, 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    from oneway.models.factory import call_factory

    armed = type(call_factory("spoilt:network", 3))
    steps = "oneway.tools.train.choose_step"
    from oneway.engine.capture import choose_step

    def arm(*arguments):
        armed.armed = True
        return choose_step(*arguments)

    monkeypatch.setattr(steps, arm)
    with pytest.raises(
        UserError, match=r"last 4 steps up to iteration 4 were not finite and were skipped \(4 in all\)"
    ):
        train(config, tmp_path / "run", resume=False, console=QUIET)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert not (tmp_path / "run" / "summary.json").exists()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert not [line for line in lines if "miou" in line]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("0 1 2", r"^$"),
        ("0 1", r"^Note: None of the 2 labelled images chosen shows b or c, which others do\. Choose others"),
        ("3 4", r"all pixels of images/3\.png and images/4\.png are ignored, and nothing would teach the classes"),
    ],
)
def test_labels_that_teach_little_or_nothing_are_said(chosen, said, tmp_path):
    """Of a set that is sound as a whole, few images may be chosen: of which all is ignored, or some classes lack."""
    random = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind).mkdir(parents=True)
    for number, labels in enumerate(([0, 255], [0], [0, 1, 2], [255], [255], [0, 1, 2], [0, 1, 2])):
        image = Image.fromarray(random.integers(256, size=(32, 64, 3), dtype=np.uint8))
        mask = Image.fromarray(np.resize(labels, (64, 32)).T.astype(np.uint8))
        for kind, picture in (("images", image), ("masks", mask)):
            picture.save(tmp_path / "data" / kind / f"{number}.png")
    pairs = "images: images, masks: masks"
    description = f"classes: [a, b, c]\ntrain: {{{pairs}}}\nval: {{{pairs}, list: val.txt}}"
    (tmp_path / "data" / "dataset.yaml").write_text(description)
    (tmp_path / "data" / "val.txt").write_text("images/5.png\nimages/6.png\n")
    (tmp_path / "list.txt").write_text("\n".join(f"images/{number}.png" for number in chosen.split()))
    data, told = {"name": "folder", "path": tmp_path / "data", "cache": tmp_path / "cache"}, io.StringIO()
    config = small_streets(recipe="folder", method="supervised", labels=str(tmp_path / "list.txt"), data=data)
    try:
        train(config, tmp_path / "run", resume=False, console=Console(file=told, width=999))
    except UserError as error:
        told.write(str(error))
    lines = [line for line in told.getvalue().splitlines() if "chosen" in line or "would teach" in line]
    assert re.search(said, "".join(lines))
    assert (tmp_path / "run").exists() == (chosen != "3 4")
