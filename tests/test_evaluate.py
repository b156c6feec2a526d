"""Facts about the confusion matrix and IoU, against torchmetrics."""

from __future__ import annotations

import io
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn
from torchmetrics.classification import (
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassJaccardIndex,
    MulticlassPrecision,
    MulticlassRecall,
)

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.models.mirrored import Mirrored
from oneway.ops import most_probable
from oneway.ops.losses import upsample
from oneway.tools.evaluate import Scores, confusion_matrices, predict
from oneway.tools.evaluate_run import about_interval, evaluate_run
from oneway.tools.train import train
from small_runs import QUIET, small_streets
from test_windows import Largest

CLASSES = 6


def random_case(seed: int, present: list[int], predicted: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 20, 30)
    labels = torch.tensor(present)[torch.randint(len(present), shape, generator=generator)]
    predictions = torch.tensor(predicted)[torch.randint(len(predicted), shape, generator=generator)]
    predictions = torch.where(torch.rand(shape, generator=generator) < 0.5, labels, predictions)
    labels[torch.rand(shape, generator=generator) < 0.2] = IGNORE
    return predictions, labels


@pytest.mark.parametrize(
    ("present", "predicted"),
    [
        ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ([0, 1, 4], [0, 1, 4]),  # classes that neither occur nor are predicted
        ([0, 1, 4], [0, 1, 2, 4]),  # one that is predicted and does not occur
    ],
)
def test_miou_is_torchmetrics(present, predicted):
    """Per class, with ignored pixels, and in the mean over the classes that the labels have."""
    predictions, labels = random_case(len(predicted), present, predicted)
    confusion = confusion_matrices(predictions, labels, CLASSES).sum(dim=0)
    oracle = MulticlassConfusionMatrix(CLASSES, ignore_index=IGNORE)(predictions, labels)
    assert torch.equal(confusion, oracle)
    scores = Scores(confusion)
    per_class = MulticlassJaccardIndex(CLASSES, average=None, ignore_index=IGNORE)(predictions, labels)
    assert scores.value == pytest.approx(100 * float(per_class[present].mean()), abs=1e-4)
    if {*predicted} <= {*present}:  # else torchmetrics has a zero more in its mean
        mean = MulticlassJaccardIndex(CLASSES, ignore_index=IGNORE)(predictions, labels)
        assert scores.value == pytest.approx(100 * float(mean), abs=1e-4)
    for index, value in enumerate(scores.per_class):
        if index in present:
            assert value == pytest.approx(100 * float(per_class[index]), abs=1e-4)
        else:
            assert value is None
    assert scores.absent == [index for index in range(CLASSES) if index not in present]


def test_recall_precision_and_dice_are_torchmetrics():
    """What is missed and what is a false alarm, class by class; unknown where there is nothing to count."""
    predictions, labels = random_case(0, [0, 1, 4], [0, 1, 2])
    scores = Scores(confusion_matrices(predictions, labels, CLASSES).sum(dim=0))
    for found, oracle, known in (
        (scores.recall, MulticlassRecall, [0, 1, 4]),
        (scores.precision, MulticlassPrecision, [0, 1, 2, 4]),  # half of the predictions are the labels
        (scores.dice, MulticlassF1Score, [0, 1, 4]),
    ):
        expected = 100 * oracle(CLASSES, average=None, ignore_index=IGNORE)(predictions, labels)
        assert [index for index, value in enumerate(found) if value is not None] == known
        assert [found[index] for index in known] == pytest.approx(expected[known].tolist(), abs=1e-4)


def test_hand_computed():
    """Two classes, four counted pixels: IoU 1/2 and 2/3."""
    labels = torch.tensor([[[0, 0, 1, 1, IGNORE]]])
    predictions = torch.tensor([[[0, 1, 1, 1, 0]]])
    scores = Scores(confusion_matrices(predictions, labels, 2)[0])
    assert scores.per_class == pytest.approx([50, 200 / 3])
    assert scores.value == pytest.approx(175 / 3)


def test_accuracy_is_the_share_of_correct_predictions():
    """3 of 4, and per class the share that is recognised."""
    scores = Scores(
        confusion_matrices(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 1, 1]), 3).sum(dim=0), "classification"
    )
    assert scores.value == 75
    assert scores.per_class == [100, pytest.approx(200 / 3), None]
    assert scores.absent == [2]


def test_only_what_has_labels_is_counted(tmp_path):
    """Images without a mask are part of a training set, and no part of what is evaluated on it.

    Of the run's own folder, where it has moved, the same images validate; of another one, all that have labels and did
    not teach.
    """
    masks, noise = 6, np.random.default_rng(0)
    for kind, count in (("images", masks + 3), ("masks", masks)):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for index in range(count):
            pixels = noise.integers(256, size=(32, 64, 3)) if kind == "images" else np.eye(32, 64)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "data" / kind / f"{index}.png")
    data = {"name": "folder", "path": tmp_path / "data", "cache": tmp_path / "cache"}
    train(small_streets(recipe="folder", data=data), tmp_path / "run", resume=False, console=QUIET)
    counts = {split: evaluate_run(tmp_path / "run", split, None, QUIET)["samples"] for split in ("train", "val")}
    assert counts["val"] > 0
    assert sum(counts.values()) == masks

    moved = (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(UserError, match=r"images are no longer there\. Name their folder with --data"):
        evaluate_run(tmp_path / "run", "val", None, QUIET)
    assert evaluate_run(tmp_path / "run", "val", moved, QUIET)["samples"] == counts["val"]
    averaged = evaluate_run(tmp_path / "run", "val", moved, QUIET, mirror=True)
    assert averaged["mirror"] is True
    assert (averaged["samples"], 0 < averaged["value"] < 100) == (counts["val"], True)
    for kind in ("images", "masks"):
        for file in (moved / kind).iterdir():
            file.rename(file.with_name(f"other-{file.name}"))
    taught = 4  # which are known by their content
    assert evaluate_run(tmp_path / "run", "val", moved, QUIET)["samples"] == masks - taught
    with pytest.raises(UserError, match="no test images with labels are known"):
        evaluate_run(tmp_path / "run", "test", moved, QUIET)
    shutil.copytree(moved / "images", moved / "test/images")
    shutil.copytree(moved / "masks", moved / "test/masks")
    for index, file in enumerate(sorted((moved / "test/images").iterdir())):
        Image.fromarray(np.full((32, 64, 3), index, dtype=np.uint8)).save(file)
    tested = evaluate_run(tmp_path / "run", "test", moved, QUIET)
    assert tested["samples"] == masks
    assert [*tested["images"]] == [f"test/images/{file.name}" for file in sorted((moved / "test/masks").iterdir())]
    assert all(0 <= value <= 100 for value in tested["images"].values())
    shutil.rmtree(moved / "test")
    (moved / "dataset.yaml").write_text("classes: [background, foreground]\nignore: [255]\n")
    for file in (moved / "masks").iterdir():
        Image.fromarray(np.full((32, 64), 255, dtype=np.uint8)).save(file)
    with pytest.raises(UserError, match=r"moved: no pixel of its images to evaluate is labelled"):
        evaluate_run(tmp_path / "run", "val", moved, QUIET, refresh=True)


def test_a_model_alone_is_scored_as_with_its_run_on_other_images(tmp_path):
    """Of colours, and reduced, as its file says; in its run folder it is the run, which knows what taught it."""
    numbers = np.random.default_rng(0)
    for folder, names, times in (("data", "abcdef", 1), ("other", "uvw", 16)):
        for kind in ("images", "masks"):
            (tmp_path / folder / kind).mkdir(parents=True)
        (tmp_path / folder / "dataset.yaml").write_text("classes: {ground: [0, 0, 9], road: [7, 0, 0]}\n")
        for name in names:
            pixels = numbers.integers(256, size=(65, 66, 3))
            mask = np.where(numbers.integers(2, size=(65, 66, 1)), (0, 0, 9), (7, 0, 0))
            for kind, picture in (("images", pixels), ("masks", mask)):
                blocks = np.kron(picture, np.ones((times, times, 1))).astype(np.uint8)
                Image.fromarray(blocks).save(tmp_path / folder / kind / f"{name}.png")
    data = {"name": "folder", "path": tmp_path / "data", "cache": tmp_path / "cache", "reduction": 2}
    train(small_streets(recipe="folder", data=data), tmp_path / "run", resume=False, console=QUIET)
    sent = tmp_path / "sent.safetensors"
    shutil.copy(tmp_path / "run/model.safetensors", sent)
    said = io.StringIO()
    expected = evaluate_run(tmp_path / "run", "val", tmp_path / "other", QUIET)
    found = evaluate_run(sent, "val", tmp_path / "other", Console(file=said, width=1000))
    assert (found.pop("run"), expected.pop("run")) == (str(sent), str(tmp_path / "run"))
    assert found == expected
    assert (found["samples"], np.sum(found["confusion"])) == (3, 3 * 520 * 528)
    assert f"{sent} does not say which images taught it" in said.getvalue()
    assert evaluate_run(sent, "val", tmp_path / "data", QUIET)["samples"] == 6
    inside = evaluate_run(tmp_path / "run/model.safetensors", "val", tmp_path / "data", QUIET)
    assert inside["samples"] == 1  # which it has not learnt from
    for split, place in (("val", None), ("train", tmp_path / "other")):
        with pytest.raises(UserError, match=r"a model without its run.*with --data DIR, and leave out --split"):
            evaluate_run(sent, split, place, QUIET)


def test_a_mirrored_network_averages_both_views():
    """By hand: the mean of two softmaxes, of which neither is lost where a class is certain."""
    torch.manual_seed(0)
    network = torch.nn.Conv2d(3, 4, 3, padding=1)
    x = torch.rand(2, 3, 5, 7)
    alone, other = network(x).softmax(1), network(torch.flip(x, (3,))).softmax(1)
    expected = (alone + torch.flip(other, (3,))) / 2
    torch.testing.assert_close(Mirrored(network)(x).exp(), expected)
    assert not torch.allclose(alone, expected)

    certain = torch.nn.Conv2d(3, 2, 1)
    certain.weight.data, certain.bias.data = torch.zeros(2, 3, 1, 1), torch.tensor([500.0, -500.0])
    assert torch.isfinite(Mirrored(certain)(x)).all()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("pixels", [(96, 160), (97, 160), (96, 131), (96, 80), (24, 20), (10, 12)])
def test_classes_of_pixels_are_those_of_all_logits_at_full_size(pixels, half, monkeypatch):
    """To the bit, ties included; without a tensor of them where the height is a multiple of the cells'."""
    monkeypatch.setattr(most_probable, "BAND", 4000)
    monkeypatch.setattr(most_probable, "AT_ONCE", 5000)
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 7, 24, 20, generator=noise).mul(3).to(torch.bfloat16 if half else torch.float32)
    logits[0] = logits[0].round()
    network = nn.Module()
    network.forward = lambda x: logits
    expected = upsample(logits, pixels).argmax(dim=1)
    with Largest() as largest:
        found = predict(network, torch.zeros(2, 3, *pixels))
    assert torch.equal(found, expected)
    assert found.dtype == expected.dtype
    if pixels == (96, 160):
        assert largest.most <= 3 * expected.numel()  # of the images themselves


def test_other_devices_find_all_classes_at_once(monkeypatch):
    """A GPU would launch several kernels for each band, also where it has none of ours."""
    monkeypatch.setattr("oneway.tools.evaluate.most_probable", lambda *_, **__: pytest.fail("in bands"))
    x = torch.zeros(2, 3, 64, 128, device="meta")
    assert predict(nn.Conv2d(3, 5, 4, stride=4, device="meta"), x).shape == (2, 64, 128)


def test_classes_of_whole_images_are_those_of_their_logits():
    """Where a model classifies."""
    logits = torch.eye(3)[[2, 0]]
    network = nn.Module()
    network.forward = lambda x: logits
    assert predict(network, torch.zeros(2, 3, 8, 8)).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        ({"samples": 99, "interval": (40.0, 50.0)}, "^$"),
        ({"samples": 9}, "with 9 images, fewer than 10"),
        ({"samples": 99, "groups": 2}, "with 2 groups of images, fewer than 10"),
        ({"samples": 99, "groups": 20}, "classes or more are shown by hardly any image"),
        ({"samples": 9, "metric": "accuracy"}, "^$"),
    ],
)
def test_why_there_is_no_interval_is_said(scores, says):
    """Of masks; images that are classified have none."""
    assert re.search(says, about_interval({"metric": "miou", "interval": None, **scores}))
