"""What an iteration gets of a pool is what it would get of the same images in memory, to the bit."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from oneway.common.errors import UserError
from oneway.common.streams import permuted
from oneway.config import Jitter
from oneway.data.dataset import Samples
from oneway.draws import MOST_SHUFFLED, Plan, batch_positions, draw, part
from oneway.engine.feed import resident, streamed
from oneway.engine.jitter import _shifts, _window, jitter_inputs, jitter_labels, jitter_pairs
from oneway.engine.regions import CropDraw, Cropping, most_needed, needed_region
from oneway.engine.store import Store
from oneway.models.projector import CELL
from pools import opened, pack, write_images
from test_feed import CPU, on_disk, scenes

POOL = 12
JITTERS = {
    "grey": Jitter(crop=(24, 32), scale=(0.5, 2.0)),
    "mirror": Jitter(crop=(24, 32), scale=(0.5, 2.0), beyond="mirror", padding=5),
    "larger than the images": Jitter(crop=(90, 90), scale=(0.7, 1.3), padding=3),
}


def plan_for(jitter: Jitter, cached: int) -> Plan:
    return Plan(3, (0, 1, 3, 4), range(cached + POOL), 3, 4, jitter.scale, flip=True, needs_pairs=True)


def with_pool_in_memory(samples: Samples, pool) -> Samples:
    """All images of both, decoded."""
    images = [pool.decode(number).pixels for number in range(len(pool))]
    sizes = np.array([image.shape[:2] for image in images], dtype=np.int64)
    return replace(
        samples,
        names=(*samples.names, *map(pool.name, range(len(pool)))),
        sizes=np.concatenate((samples.sizes, sizes)),
        pixels=np.concatenate([samples.pixels[:], *(image.reshape(-1, 3) for image in images)]),
    )


@pytest.fixture
def pool(tmp_path):
    folder = write_images(tmp_path / "images", POOL)
    return opened(pack(folder, tmp_path / "shards"), tmp_path / "cache")


def crops(fed, draws, jitter):
    pair = jitter_pairs(fed.store, draws.unlabelled, draws.overlap, jitter)
    return [
        jitter_inputs(fed.store, draws.labelled, jitter),
        jitter_labels(fed.store, draws.labelled, jitter),
        jitter_inputs(fed.store, draws.unlabelled, jitter),
        pair.second,
    ]


@pytest.mark.parametrize("jitter", JITTERS.values(), ids=JITTERS)
def test_crops_of_a_pool_are_those_of_images_in_memory(jitter, pool):
    """At every scale, beyond borders, flipped, and of both crops of a pair; in any order of iterations."""
    samples = replace(scenes(), pool=pool)
    plan = plan_for(jitter, len(samples))
    window, whole = (
        streamed(samples, plan, CPU, jitter=jitter),
        resident(with_pool_in_memory(scenes(), pool), plan, CPU),
    )
    places = [column.data_ptr() for column in (window.store.pixels, window.store.box)]
    for iteration in (0, 1, 2, 3, 9, 10, 2):
        drawn = whole.draws(iteration)
        while not window.ready(iteration):  # the first of all waits for processes
            assert iteration == 0
        for one, other in zip(crops(window, window.draws(iteration), jitter), crops(whole, drawn, jitter), strict=True):
            assert torch.equal(one, other)
    assert [column.data_ptr() for column in (window.store.pixels, window.store.box)] == places
    window.close()


@pytest.mark.parametrize("jitter", JITTERS.values(), ids=JITTERS)
@pytest.mark.parametrize("where", ["in memory", "on disk"])
def test_crops_of_parts_that_are_streamed_are_those_of_whole_images(jitter, where, tmp_path):
    """Labels too; and for small crops less is sent than images have."""
    samples = scenes() if where == "in memory" else on_disk(scenes(), tmp_path)
    plan = replace(plan_for(jitter, len(samples)), unlabelled=range(len(samples)))
    window, whole = streamed(samples, plan, CPU, jitter=jitter), resident(scenes(), plan, CPU)
    for iteration in (0, 1, 2, 9, 3):
        drawn = whole.draws(iteration)
        for one, other in zip(crops(window, window.draws(iteration), jitter), crops(whole, drawn, jitter), strict=True):
            assert torch.equal(one, other)
    sent = streamed(samples, replace(plan, scale=(1.0, 1.0), needs_pairs=False), CPU, jitter=Jitter(crop=(8, 8))).store
    assert len(sent.pixels) < len(streamed(samples, plan, CPU).store.pixels) / 3


@pytest.mark.parametrize("beyond", ["grey", "mirror"])
@pytest.mark.parametrize("padding", [0, 7, 400])
@pytest.mark.parametrize("pairs", [False, True])
def test_only_what_crops_are_made_of_is_kept(padding, beyond, pairs):
    """All places of a crop lie in its box, whatever its image: of any size, smaller than the crop, flipped.

    And the box has little else, and never more than there is room for.
    """
    jitter = Jitter(crop=(352, 300), scale=(0.4, 2.5), padding=padding, beyond=beyond)
    cropping, most = Cropping(jitter.crop, padding, beyond == "mirror", CELL), most_needed(0.4, jitter.crop, pairs)
    plan, random, nothing = plan_for(jitter, 8), np.random.default_rng(0), torch.empty(0, dtype=torch.uint8)
    kept = needed = 0
    for iteration in range(300):
        table = draw(plan, iteration)
        own = type(table.unlabelled)(*(column[:1] for column in table.unlabelled))._replace(item=torch.zeros(1).long())
        size = tuple(random.integers(20, 3000, size=2).tolist())
        shift = tuple(table.overlap.shift[0].tolist()) if pairs else None
        numbers = (float(own.scale), float(own.top), float(own.left), bool(own.flip), shift)
        top, left, bottom, right = needed_region(size, CropDraw(*numbers), cropping)
        assert 0 <= top < bottom <= size[0]
        assert 0 <= left < right <= size[1]
        assert (bottom - top) * (right - left) <= most

        store = Store(nothing, nothing, torch.zeros(1).long(), torch.tensor([size]), dense=True)
        windows = [_window(store, own, jitter, jitter.crop)]
        if pairs:
            first = type(table.overlap)(*(column[:1] for column in table.overlap))
            windows.append(_window(store, own, jitter, jitter.crop, _shifts(store, own, first, jitter)))
        for length, (begin, end), places in (
            (size[0], (top, bottom), torch.cat([window.y for window in windows])),
            (size[1], (left, right), torch.cat([window.x for window in windows])),
        ):
            inside = places[(places >= -0.5) & (places <= length + 0.5)]  # beyond, there is nothing of the image
            if inside.numel():
                least, most_of_all = float(inside.min()) - 0.5, float(inside.max()) - 0.5
                assert begin <= max(int(np.floor(least)), 0)
                assert end >= min(int(np.floor(most_of_all)) + 2, length)
                kept, needed = kept + end - begin, needed + most_of_all - least + 2
    assert kept < 1.05 * needed


def test_a_share_of_the_draws_is_all_that_is_decoded(pool):
    """By one of two processes."""
    jitter = JITTERS["grey"]
    samples = replace(scenes(), pool=pool)
    plan = replace(plan_for(jitter, len(samples)), batch_labelled=4)
    whole = resident(with_pool_in_memory(scenes(), pool), plan, CPU)
    for rank in (0, 1):
        fed = streamed(samples, plan, CPU, jitter, lambda draws, rank=rank: part(draws, rank, 2))
        for iteration in (0, 1):
            expected = crops(whole, part(whole.draws(iteration), rank, 2), jitter)
            for one, other in zip(crops(fed, fed.draws(iteration), jitter), expected, strict=True):
                assert torch.equal(one, other)
        fed.close()


def test_waiting_for_a_pool_can_be_given_up(pool, monkeypatch):
    """So that a signal is answered while a server is not."""
    answer = threading.Event()
    monkeypatch.setattr(pool, "read", lambda *asked: answer.wait(60))
    fed = streamed(replace(scenes(), pool=pool), plan_for(JITTERS["grey"], 12), CPU, jitter=JITTERS["grey"])
    began = time.monotonic()
    assert not fed.ready(0)
    assert time.monotonic() - began < 10
    answer.set()
    fed.close()


def test_what_cannot_be_read_is_said_when_it_is_due(pool, monkeypatch):
    """And not before."""
    samples = replace(scenes(), pool=pool)
    plan = plan_for(JITTERS["grey"], len(samples))
    asked = [max(draw(plan, iteration).unlabelled.item.tolist()) >= 12 for iteration in range(20)]
    before = next(number for number in range(20) if asked[number : number + 2] == [False, True])

    def fail(*asked):
        raise UserError("gone")

    monkeypatch.setattr(pool, "read", fail)
    fed = streamed(samples, plan, CPU, jitter=JITTERS["grey"])
    fed.draws(before)
    with pytest.raises(UserError, match="gone"):
        fed.draws(before + 1)
    fed.close()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 1000, 4097])
def test_positions_are_permuted(count):
    """Every number comes once."""
    assert sorted(permuted(3, "test", 0, count, range(count)).tolist()) == list(range(count))


def test_an_epoch_of_ten_million_images_is_a_permutation_of_them():
    """Without computing it: batches at any place are disjoint, spread evenly, and others in other epochs and seeds."""
    count, batch = 10**7, 1000
    places = [0, 1, 2, 4999, 9998, 9999]
    epoch = [batch_positions(7, "unlabelled", count, batch, place) for place in places]
    seen = np.array(epoch).reshape(-1)
    assert len(set(seen.tolist())) == len(seen)
    assert seen.min() >= 0
    assert seen.max() < count
    tenths = np.bincount(seen * 10 // count, minlength=10)
    assert ((tenths - 600) ** 2 / 600).sum() < 30  # χ² with nine degrees of freedom: once in 2,000 seeds
    assert batch_positions(7, "unlabelled", count, batch, 10000) != epoch[0]
    assert batch_positions(8, "unlabelled", count, batch, 0) != epoch[0]
    assert batch_positions(7, "unlabelled", count, batch, 4999) == epoch[3]


def test_orders_of_fewer_images_are_as_ever():
    """Runs of earlier versions go on with the images they would have had."""
    from oneway.common.streams import stream

    order = stream(7, "order of unlabelled", 0).permutation(5000)
    assert batch_positions(7, "unlabelled", 5000, 8, 3) == order[24:32].tolist()
    assert MOST_SHUFFLED >= 10**6
