"""Facts about the intervals of scores: against SciPy's bootstrap, and how often they hold what is true."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap

from oneway.tools.intervals import (
    FEWEST,
    SELDOM,
    interval_of,
    interval_of_gain,
    intervals_of_classes,
    miou_of_images,
    seldom_shown,
    together,
)

CLASSES = 4


def images(count: int, seed: int, quality: float = 0.8) -> np.ndarray:
    """N×3×C counts of images that differ in what they show and in how well it is seen; all have every class."""
    random = np.random.default_rng(seed)
    labelled = random.integers(50, 1000, (count, CLASSES))
    hits = random.binomial(labelled, np.clip(random.normal(quality, 0.1, (count, 1)), 0, 1))
    wrong = labelled - hits
    return np.stack([hits, labelled, hits + np.roll(wrong, 1, axis=1)], axis=1)


def miou(counts: np.ndarray) -> float:
    hits, labelled, predicted = counts.sum(axis=0)
    return float(100 * np.mean(hits / (labelled + predicted - hits)))


@pytest.mark.parametrize("count", [FEWEST, 80])
def test_intervals_are_scipys(count):
    """Of percentiles, with draws of its own: of mIoU, of a class and of the gain of one model over another."""
    before, after = images(count, 0), images(count, 1, quality=0.83)

    def scipys(statistic):
        found = bootstrap(
            (range(count),), statistic, n_resamples=2000, vectorized=False, method="percentile", rng=0
        ).confidence_interval
        return pytest.approx((found.low, found.high), abs=0.06 * (found.high - found.low))

    assert interval_of(before) == scipys(lambda drawn: miou(before[drawn]))
    assert interval_of_gain(before, after) == scipys(lambda drawn: miou(after[drawn]) - miou(before[drawn]))
    assert intervals_of_classes(before)[2] == scipys(lambda drawn: miou(before[drawn][..., 2:3]))


def test_the_interval_holds_the_truth():
    """In about 95 of a hundred sets of 60 images; the truth is what a great many images say."""
    truth = miou(images(20_000, 0))
    held = sum(low <= truth <= high for low, high in (interval_of(images(60, seed)) for seed in range(1, 201)))
    assert 180 <= held <= 198


def test_images_of_a_group_are_drawn_together():
    """Frames of a video say no more than one of them: each five times over, they have the interval of single ones."""
    single = images(20, 0)
    groups = [f"video {number // 5}" for number in range(100)]
    frames = np.repeat(single, 5, axis=0)
    assert interval_of(together(frames, groups)) == pytest.approx(interval_of(single), abs=1)
    (low, high), (least, most) = interval_of(frames), interval_of(single)
    assert high - low < 0.6 * (most - least)
    assert interval_of(together(frames, [f"{number // 20}" for number in range(100)])) is None
    assert together(frames, ()) is frames


def test_models_alike_differ_by_little():
    """Images are the same for both: what is hard for one is hard for the other, and does not blur the difference."""
    before = images(60, 0)
    after = before.copy()
    gained = (before[:, 1] - before[:, 0]) // 20
    after[:, 0] += gained
    after[:, 2] += gained
    (low, high), (worst, best) = interval_of_gain(before, after), interval_of(before)
    assert 0 < low < high
    assert high - low < (best - worst) / 3


def test_few_images_have_no_interval():
    """Neither those of a set, nor those that have a class."""
    counts = images(30, 0)
    assert interval_of(counts[: FEWEST - 1]) is None
    assert interval_of_gain(counts[:2], counts[:2]) is None
    assert intervals_of_classes(counts[:2]) == [None] * CLASSES
    counts[FEWEST - 1 :, :, 1] = 0
    found = intervals_of_classes(counts)
    assert found[1] is None
    assert None not in (found[0], found[2], found[3])


def test_draws_without_a_class_leave_it_out():
    """Of a mean, as images without the class do; an image without any label changes nothing."""
    counts = images(20, 0)
    counts[1:, :, 3] = 0
    counts[0, :, 3] = 100  # seen without a mistake, in one image of twenty
    low, high = interval_of(counts)
    assert low < miou(np.delete(counts, 3, axis=2)) < miou(counts) < high
    nothing = np.concatenate([counts, np.zeros_like(counts[:1])])
    assert interval_of(nothing) == pytest.approx((low, high), abs=0.7)


@pytest.mark.parametrize("showing", [1, SELDOM - 1, SELDOM])
def test_a_class_that_few_images_show_is_not_lost_among_draws(showing):
    """Of background and a rare defect, draws without the defect would score the background: an upper end near 100."""
    counts = images(30, 0)[:, :, :2]
    counts[:, 2] = counts[:, 1]  # as much is found as there is
    counts[:, 0, 1] = counts[:, 1, 1] // 2  # half of the defects
    counts[showing:, :, 1] = 0
    found = [interval_of(counts), interval_of_gain(counts, counts)]
    assert seldom_shown(counts) == ({1: showing} if showing < SELDOM else {})
    if showing < SELDOM:
        assert found == [None, None]
    else:
        assert found[0][1] < 75
    assert not seldom_shown(np.concatenate([images(30, 0), counts[:, :, 1:]], axis=2))  # one class of five


def test_an_image_has_the_mean_of_its_classes():
    """Of those that it has; by hand."""
    counts = np.array([[[1, 2, 0], [2, 2, 0], [1, 4, 1]], [[0, 0, 0], [0, 0, 0], [3, 0, 0]]])
    first, second = miou_of_images(counts)
    assert first == pytest.approx(100 * (1 / 2 + 2 / 4) / 2)
    assert np.isnan(second)
