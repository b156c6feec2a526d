"""Facts about randomness: it is a function of (seed, iteration)."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import combinations

import pytest
import torch

from oneway.common.streams import stream
from oneway.draws import Draws, Plan, batch_positions, draw

PLAN = Plan(
    seed=3,
    labelled=(4, 7, 9),
    unlabelled=tuple(range(20)),
    batch_labelled=2,
    batch_unlabelled=4,
    scale=(0.5, 2),
    flip=True,
    noise_shape=(2,),
)


def columns(draws: Draws) -> list[torch.Tensor]:
    return [
        *draws.labelled,
        *draws.unlabelled,
        *draws.views[0].photometric,
        draws.views[0].displacements,
        *draws.views[0].boxes[:3],  # all that are drawn of it
        draws.views[0].noise,
    ]


def test_an_iteration_does_not_depend_on_the_ones_before():
    """Drawn in any order, as often as one likes, iteration 17 is iteration 17."""
    first = draw(PLAN, 17)
    for iteration in (3, 99, 0):
        draw(PLAN, iteration)
    assert all(torch.equal(a, b) for a, b in zip(columns(first), columns(draw(PLAN, 17)), strict=True))


@pytest.mark.parametrize(("seed", "iteration"), [(3, 18), (4, 17)])
def test_another_seed_or_iteration_draws_something_else(seed, iteration):
    """Every continuous column differs."""
    other = draw(Plan(**{**PLAN.__dict__, "seed": seed}), iteration)
    here = draw(PLAN, 17)
    for a, b in zip(columns(here), columns(other), strict=True):
        if a.is_floating_point():
            assert not torch.isclose(a, b).any()


def test_values_stay_where_they_have_been():
    """Golden numbers: a change here would silently change every run that is resumed or repeated."""
    draws = draw(PLAN, 17)
    assert draws.labelled.item.tolist() == [9, 4]
    torch.testing.assert_close(draws.views[0].displacements[0, 0], torch.tensor([-0.8802762, 0.0342557]))


def test_an_epoch_shows_every_image_once():
    """⌊20 / 4⌋ batches are a permutation; the next epoch is another one."""
    epochs = [[i for k in range(5) for i in batch_positions(0, "x", 20, 4, 5 * epoch + k)] for epoch in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))
    assert epochs[0] != epochs[1]


def test_the_rest_of_an_epoch_is_dropped():
    """Of 10 images in batches of 4, an epoch shows 8 different ones, as the paper counts its epochs."""
    epoch = batch_positions(0, "x", 10, 4, 0) + batch_positions(0, "x", 10, 4, 1)
    assert len(set(epoch)) == 8


def test_a_batch_larger_than_the_set_repeats_evenly():
    """8 out of 3: every image twice or three times."""
    for iteration in range(10):
        assert sorted(Counter(batch_positions(0, "x", 3, 8, iteration)).values()) == [2, 3, 3]


def test_items_come_from_their_sets():
    """Labelled batches hold labelled images only."""
    for iteration in range(20):
        assert set(draw(PLAN, iteration).labelled.item.tolist()) <= {4, 7, 9}


def test_scale_is_log_uniform_in_its_range():
    """Half of the scales in [½, 2] lie below 1."""
    scales = torch.cat([draw(PLAN, iteration).unlabelled.scale for iteration in range(500)])
    assert scales.min() >= 0.5
    assert scales.max() <= 2
    assert abs((scales < 1).double().mean() - 0.5) < 0.04


def test_roles_have_numbers_of_their_own():
    """Further views of the unlabelled images, and the augmentation, share nothing with the first, nor shift it."""
    more = draw(Plan(**{**PLAN.__dict__, "views": 3, "augmented": 5}), 17)
    assert all(torch.equal(a, b) for a, b in zip(columns(draw(PLAN, 17)), columns(more), strict=True))
    assert more.augmentation is not None
    for one, other in combinations(more.views, 2):
        assert not torch.isclose(one.displacements, other.displacements).any()
    assert len(more.augmentation.displacements) == 5


def test_large_keys_are_not_rounded():
    """Every bit of a purpose's key counts: Philox gets it as an integer, whatever its size."""
    for purpose in ("split", "order of labelled", "perturbation"):
        expected = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8])
        key = stream(5, purpose).bit_generator.state["state"]["key"]
        assert [int(word) for word in key] == [5, expected]
