"""What helps rare classes in the loss of labels: against PyTorch's own weights and transcriptions in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from algorithms import NoWaiting, settings
from oneway import ops
from oneway.common.terms import IGNORE
from oneway.data.dataset import Samples
from oneway.engine.balance import class_counts, class_weights
from oneway.methods.supervised import labelled_loss
from oneway.tools.train import train
from small_runs import QUIET, small_streets

BALANCES = ("none", "frequency", "dice", "ohem")
CLASSES = 5
WEIGHTS = torch.tensor([0.3, 1.0, 2.5, 0.7, 9.0], dtype=torch.float64)


def logits_and_labels(dense: bool = True) -> tuple[Tensor, Tensor]:
    """At a quarter of the resolution; a third of the labels ignored, and class 4 among none of them."""
    random = torch.Generator().manual_seed(0)
    shape = (2, 12, 20) if dense else (24,)
    logits = 3 * torch.randn((2, CLASSES, 3, 5) if dense else (24, CLASSES), dtype=torch.float64, generator=random)
    labels = torch.randint(4, shape, generator=random)
    labels[torch.rand(shape, generator=random) < 0.33] = IGNORE
    return logits.requires_grad_(), labels


def at_labels(logits: Tensor, labels: Tensor) -> Tensor:
    return F.interpolate(logits, labels.shape[1:], mode="bilinear") if labels.ndim == 3 else logits


def literal_dice(logits: Tensor, labels: Tensor) -> Tensor:
    """Class by class, of the pixels that have a label."""
    p = at_labels(logits, labels).softmax(dim=1).movedim(1, -1)[labels != IGNORE]
    y = labels[labels != IGNORE]
    present = sorted(set(y.tolist()))
    assert len(present) == CLASSES - 1
    losses = [1 - 2 * p[y == c, c].sum() / (p[:, c].sum() + (y == c).sum()) for c in present]
    return sum(losses) / len(losses)


def literal_ohem(logits: Tensor, labels: Tensor) -> Tensor:
    """The losses of labelled pixels one by one, sorted, the first quarter of them."""
    p = at_labels(logits, labels).softmax(dim=1).movedim(1, -1)
    losses = sorted(-p[place][labels[place]].log() for place in map(tuple, (labels != IGNORE).nonzero().tolist()))
    hardest = losses[::-1][: math.ceil(len(losses) / 4)]
    return sum(hardest) / len(hardest)


def expected(balance: str, logits: Tensor, labels: Tensor) -> Tensor:
    full = at_labels(logits, labels)
    match balance:
        case "frequency":
            weighted = F.cross_entropy(full, labels, weight=WEIGHTS, ignore_index=IGNORE, reduction="sum")
            return weighted / (labels != IGNORE).sum()
        case "dice":
            return F.cross_entropy(full, labels, ignore_index=IGNORE) + literal_dice(logits, labels)
        case "ohem":
            return literal_ohem(logits, labels)
    return F.cross_entropy(full, labels, ignore_index=IGNORE)


@pytest.mark.parametrize("dense", [True, False], ids=["pixels", "whole images"])
@pytest.mark.parametrize("balance", BALANCES)
def test_losses_and_gradients(balance, dense):
    """Of upsampled logits, ignored labels left out."""
    logits, labels = logits_and_labels(dense)
    found = labelled_loss(logits, labels, settings(balance=balance, class_weights=WEIGHTS))
    wanted = expected(balance, logits, labels)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (found, wanted)]
    assert gradients[0].abs().max() > 1e-4
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("balance", BALANCES)
def test_without_labels_there_is_nothing_to_learn(balance):
    """A loss of 0 with gradients of 0, not NaN."""
    logits, labels = logits_and_labels()
    loss = labelled_loss(logits, torch.full_like(labels, IGNORE), settings(balance=balance, class_weights=WEIGHTS))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss == 0
    assert (gradient == 0).all()


def test_ignored_pixels_take_no_place_among_the_hardest():
    """With a single labelled pixel its loss is the mean, however many pixels there are."""
    logits, labels = logits_and_labels()
    single = torch.full_like(labels, IGNORE)
    single[1, 4, 7] = 2
    pixel = at_labels(logits, labels)[1, :, 4, 7]
    torch.testing.assert_close(ops.hardest_cross_entropy(logits, single), -pixel.log_softmax(dim=0)[2])


@pytest.mark.parametrize("balance", BALANCES)
def test_a_step_can_be_captured(balance):
    """Neither the loss nor its gradient asks the device for a number."""
    logits, labels = logits_and_labels()
    with NoWaiting():
        labelled_loss(logits, labels, settings(balance=balance, class_weights=WEIGHTS)).backward()


def test_the_watch_over_waiting_sees_it():
    with pytest.raises(AssertionError, match=r"nonzero|index"), NoWaiting():
        torch.ones(3)[torch.ones(3) > 0]


def samples(dense: bool) -> Samples:
    random = np.random.default_rng(0)
    labels = random.choice([0, 0, 0, 0, 0, 1, 1, 3, IGNORE], (6, 4, 5) if dense else 6).astype(np.uint8)
    return Samples.stacked(tuple("abcdef"), np.zeros((6, 4, 5, 3), dtype=np.uint8), labels)


@pytest.mark.parametrize("dense", [True, False], ids=["pixels", "whole images"])
def test_weights_come_from_the_labelled_images(dense):
    """∝ 1/√frequency in those images and no others; their mean over the labelled pixels is 1."""
    images, chosen = samples(dense), [0, 2, 3, 5]
    each = images.labels.reshape(6, -1)[chosen].ravel()
    counts = [(each == c).sum() for c in range(4)]
    assert class_counts(images, chosen, 4).tolist() == counts
    weights = class_weights(images, chosen, 4).double()
    assert weights[each[each != IGNORE].astype(int)].mean() == pytest.approx(1, abs=1e-6)
    for c in range(4):
        if counts[c] == 0:
            assert weights[c] == 0
        else:
            assert float(weights[c] / weights[0]) == pytest.approx(math.sqrt(counts[0] / counts[c]), rel=1e-6)


@pytest.mark.parametrize("balance", BALANCES[1:])
def test_a_run_on_streets(balance, tmp_path):
    """Three iterations of a semi-supervised run: each option learns something else than none."""
    summaries = [
        train(
            small_streets(train={"iterations": 3, "balance": name, "log_every": 1}),
            tmp_path / name,
            resume=False,
            console=QUIET,
        )
        for name in ("none", balance)
    ]
    assert all(summary["skipped_steps"] == 0 for summary in summaries)
    plain, balanced = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("none", balance))
    assert plain != balanced
