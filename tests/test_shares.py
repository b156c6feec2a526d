"""Each of several processes has its share of the draws, and the losses of the shares are that of the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from algorithms import batch_of, settings
from oneway import models
from oneway.draws import Draws, Plan, columns_of, draw, part
from oneway.engine.jitter import jitter_inputs
from oneway.engine.store import Store
from oneway.methods.consistency import consistency
from oneway.models.roles import Models
from oneway.perturb import perturbation
from small_runs import small_streets

PLAN = Plan(0, tuple(range(6)), tuple(range(16)), 4, 8, (0.7, 1.4), True, views=2, augmented=2)


@pytest.mark.parametrize("of", [1, 2])
def test_shares_of_a_table_are_the_whole_table(of):
    """Every row of every column goes to one process, and pairs stay together."""
    whole = draw(PLAN, 3)
    shares = [part(whole, rank, of) for rank in range(of)]
    items = [item for share in shares for item in share.unlabelled.item.tolist()]
    assert sorted(items) == sorted(whole.unlabelled.item.tolist())
    assert sum(len(share.views[1].boxes.height) for share in shares) == len(whole.views[1].boxes.height)
    assert torch.equal(
        torch.cat([share.augmentation.displacements for share in shares]), whole.augmentation.displacements
    )
    half = len(whole.unlabelled.item) // 2
    partner = dict(zip(whole.unlabelled.item[:half].tolist(), whole.unlabelled.item[half:].tolist(), strict=True))
    for share in shares:
        first, second = share.unlabelled.item.tolist()[: half // of], share.unlabelled.item.tolist()[half // of :]
        assert [partner[item] for item in first] == second


def test_perturbations_stay_with_their_labelled_images():
    """Where all of them are perturbed, each process gets those of its own images."""
    whole = draw(replace(PLAN, augmented=4), 3)
    of_item = dict(zip(whole.labelled.item.tolist(), whole.augmentation.displacements, strict=True))
    for share in (part(whole, rank, 2) for rank in range(2)):
        for item, displacements in zip(share.labelled.item.tolist(), share.augmentation.displacements, strict=True):
            assert torch.equal(displacements, of_item[item])


def test_a_batch_that_does_not_divide_is_refused():
    """With its size."""
    with pytest.raises(ValueError, match="4 images do not divide into shares for 3 processes"):
        part(draw(PLAN, 0), 0, 3)


def test_losses_of_shares_are_the_loss_of_the_whole():
    """A share's consistency loss counts its own pixels; weighted by them, the shares' mean is the whole batch's."""
    from oneway import data

    config = small_streets(method="mt-cutmix")
    dataset = data.load(config.data)
    store = Store.hold(dataset.read("train"), torch.device("cpu"))
    network = models.build(config.model, len(dataset.classes), seed=0).eval()

    def loss(draws: Draws) -> tuple[float, int]:
        x = jitter_inputs(store, draws.unlabelled, config.jitter)
        changes = perturbation(("phtps", "cutmix"), draws.views[0], x, config.perturb)
        batch = batch_of(x, x, x, [changes])
        frozen = Models((network,), (network,), models.NormPolicy("frozen"))
        return float(consistency(frozen, batch, settings()).detach()), int(changes.valid.sum())

    whole = draw(PLAN, 3)
    parts = [loss(part(whole, rank, 2)) for rank in range(2)]
    value, count = loss(whole)
    assert sum(pixels for _, pixels in parts) == count
    assert sum(mean * pixels for mean, pixels in parts) / count == pytest.approx(value, rel=1e-4)


def test_a_table_of_draws_may_have_any_number_of_views():
    """They are columns like all others."""
    found = columns_of(draw(Plan(**{**PLAN.__dict__, "views": 5}), 0))
    assert sum(len(column.shape) == 3 and column.shape[1:] == (4, 2) for column in found) == 6
