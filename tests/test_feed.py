"""What an iteration gets does not depend on the way it is fed: all data on the device, or a batch at a time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.config import Jitter
from oneway.data.cache.rows import OnDisk
from oneway.data.dataset import Samples
from oneway.draws import Draws, Plan, columns_of, draw
from oneway.engine.feed import Feed, feed, resident, streamed
from oneway.engine.jitter import jitter_inputs, jitter_labels

CPU = torch.device("cpu")
SIZES = [(20, 30), (33, 17), (24, 40)]
LABELLED, UNLABELLED = 5, 7
PLAN = Plan(
    seed=3,
    labelled=(0, 1, 3, 4),
    unlabelled=tuple(range(LABELLED + UNLABELLED)),
    batch_labelled=3,
    batch_unlabelled=4,
    scale=(0.7, 1.4),
    flip=True,
)


def scenes() -> Samples:
    """Images of three sizes, the first of them with a label for each pixel."""
    random = np.random.default_rng(0)
    sizes = np.array([SIZES[index % 3] for index in range(LABELLED + UNLABELLED)], dtype=np.int64)
    areas = sizes.prod(axis=1)
    labels = random.choice(np.array([0, 1, 2, IGNORE], dtype=np.uint8), size=areas[:LABELLED].sum())
    return Samples(
        names=tuple(f"{index}.png" for index in range(len(sizes))),
        sizes=sizes,
        pixels=random.integers(256, size=(areas.sum(), 3), dtype=np.uint8),
        labels=labels,
        labelled=LABELLED,
        dense=True,
        content="",
    )


def objects() -> Samples:
    """Images of one size, each with one label."""
    random = np.random.default_rng(1)
    images = random.integers(256, size=(12, 16, 16, 3), dtype=np.uint8)
    return Samples.stacked(tuple(map(str, range(12))), images, random.integers(10, size=12, dtype=np.uint8))


def points() -> Samples:
    """Points in the plane, each with one label."""
    random = np.random.default_rng(2)
    positions = random.normal(size=(12, 2)).astype(np.float32)
    return Samples.stacked(tuple(map(str, range(12))), positions, random.integers(2, size=12, dtype=np.uint8))


def on_disk(samples: Samples, folder: Path) -> Samples:
    """The same in files, as the cache has them."""
    rows = {"pixels": samples.pixels, "labels": samples.labels}
    for name, row in rows.items():
        (folder / name).write_bytes(row[:].tobytes())
    return replace(samples, **{name: OnDisk(folder / name, row.shape) for name, row in rows.items()})


SETS = {"scenes": (scenes(), (24, 24)), "objects": (objects(), (16, 16)), "points": (points(), None)}
ORDERS = {
    "from the start": [0, 1, 2, 3, 4, 5, 6],
    "resumed": [4, 5, 6],
    "with a leap ahead and back": [2, 3, 7, 8, 1, 2, 2, 0],
}


def taken(fed: Feed, iteration: int, crop: tuple[int, int] | None) -> list[torch.Tensor]:
    """Labelled crops, their labels and unlabelled crops of an iteration, as a step takes them."""
    draws, config = fed.draws(iteration), Jitter(crop=crop)
    return [
        jitter_inputs(fed.store, draws.labelled, config),
        jitter_labels(fed.store, draws.labelled, config),
        jitter_inputs(fed.store, draws.unlabelled, config),
    ]


def without_items(draws: Draws) -> Draws:
    """What remains when images are numbered otherwise."""
    nothing = torch.zeros(0)
    return draws._replace(
        labelled=draws.labelled._replace(item=nothing), unlabelled=draws.unlabelled._replace(item=nothing)
    )


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(("samples", "crop"), SETS.values(), ids=SETS)
def test_both_ways_give_the_same_crops_and_labels(samples, crop, order):
    """To the bit, for images of three sizes, for whole images with a class, and for points; in any order asked for."""
    whole, window = (way(samples, PLAN, CPU) for way in (resident, streamed))
    for iteration in order:
        for one, other in zip(taken(whole, iteration, crop), taken(window, iteration, crop), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


@pytest.mark.parametrize("way", [resident, streamed])
def test_what_lies_on_disk_is_fed_as_what_lies_in_memory(way, tmp_path):
    """To the bit, whichever way it is fed."""
    in_memory, stored = (way(samples, PLAN, CPU) for samples in (scenes(), on_disk(scenes(), tmp_path)))
    for iteration in (0, 1, 5):
        for one, other in zip(taken(in_memory, iteration, (24, 24)), taken(stored, iteration, (24, 24)), strict=True):
            assert torch.equal(one, other)


def test_a_crop_is_of_the_image_that_the_draw_names():
    """Without scale, flip or room to move, each crop is the image itself, by its place in the samples."""
    images, crop = objects(), (16, 16)
    plan = replace(PLAN, scale=(1.0, 1.0), flip=False)
    for fed in (resident(images, plan, CPU), streamed(images, plan, CPU)):
        for iteration in (0, 1, 5):
            named = draw(plan, iteration)
            labelled, labels, unlabelled = taken(fed, iteration, crop)
            for crops, items in ((labelled, named.labelled.item), (unlabelled, named.unlabelled.item)):
                expected = np.stack([images.image(item) for item in items.tolist()])
                assert np.array_equal((255 * crops).round().byte().permute(0, 2, 3, 1).numpy(), expected)
            assert labels.tolist() == [images.labels[item] for item in named.labelled.item.tolist()]


def test_a_window_stays_in_place_and_is_as_large_as_a_batch_can_be():
    """A captured step refers to its tensors: none is ever another, however large the images of an iteration are."""
    samples = scenes()
    fed = streamed(samples, PLAN, CPU)
    columns = (fed.store.pixels, fed.store.labels, fed.store.start, fed.store.size)
    places = [column.data_ptr() for column in columns]
    for iteration in range(5):
        fed.draws(iteration)
    assert [column.data_ptr() for column in columns] == places
    assert len(fed.store.pixels) == (PLAN.batch_labelled + PLAN.batch_unlabelled) * 24 * 40
    assert len(fed.store.pixels) < len(samples.pixels)


def test_nothing_but_the_numbering_of_images_is_changed():
    """Scales, places, flips and perturbations are those drawn for the iteration."""
    window = streamed(scenes(), PLAN, CPU)
    for iteration in (0, 6):
        columns = [list(columns_of(without_items(draws))) for draws in (draw(PLAN, iteration), window.draws(iteration))]
        assert len(columns[0]) > 10
        assert all(torch.equal(one, other) for one, other in zip(*columns, strict=True))


def test_what_fails_while_the_next_batch_is_gathered_is_said_when_that_is_due():
    """And not in the iteration before, which is unharmed."""
    plan = replace(PLAN, unlabelled=(*range(7), 99))  # the last image is not there
    asks = [99 in draw(plan, iteration).unlabelled.item for iteration in range(20)]
    before = next(iteration for iteration in range(20) if asks[iteration : iteration + 2] == [False, True])
    fed = streamed(scenes(), plan, CPU)
    fed.draws(before)
    with pytest.raises(IndexError):
        fed.draws(before + 1)


def test_data_in_memory_stay_where_they_are_without_a_gpu():
    """They need no copy."""
    samples = scenes()
    fed = feed(samples, PLAN, CPU)
    assert fed.place == "in memory"
    assert fed.store.pixels.data_ptr() == samples.pixels.ctypes.data


def test_data_on_disk_are_brought_into_memory_if_there_is_room(tmp_path, monkeypatch):
    """Then nothing that happens to the files can harm the run; without room, a file that lost its end is named."""
    samples = on_disk(scenes(), tmp_path)
    whole = feed(samples, PLAN, CPU)
    assert whole.place == "in memory"
    monkeypatch.setattr("oneway.engine.feed.SHARE_OF_DEVICE", 0)
    window = feed(samples, PLAN, CPU)
    assert window.place == "streamed from the cache"
    os.truncate(tmp_path / "pixels", 100)
    assert torch.equal(taken(whole, 0, (24, 24))[0], taken(resident(scenes(), PLAN, CPU), 0, (24, 24))[0])
    with pytest.raises(UserError, match="pixels: has 100 of its"):
        window.draws(0)
