"""Facts about which images count as labelled."""

from __future__ import annotations

import numpy as np
import pytest

from oneway.data import Samples
from oneway.data.splits import choose
from oneway.errors import UserError

NAMES = tuple(f"image-{index:03d}" for index in range(367))
IMAGES = Samples(NAMES, np.zeros((367, 1, 1, 3), np.uint8), np.zeros((367, 1, 1), np.uint8))


@pytest.mark.parametrize(("labels", "count"), [("1/8", 45), ("1/4", 91), ("1/1", 367), ("45", 45), ("1", 1)])
def test_a_fraction_is_rounded_down_and_a_number_is_itself(labels, count):
    """1/8 of CamVid's 367 training images are 45."""
    split = choose(IMAGES, labels, seed=0)
    assert len(set(split.labelled)) == count
    assert set(split.labelled) <= set(NAMES)


def test_every_image_serves_without_its_label():
    """The unlabelled set includes the labelled images, as in the paper."""
    assert choose(IMAGES, "12", seed=0).unlabelled == NAMES


def test_the_seed_decides():
    """The same seed gives the same images and hash; another one others."""
    first, again, other = (choose(IMAGES, "12", seed) for seed in (0, 0, 1))
    assert first == again
    assert first.hash == again.hash
    assert first.labelled != other.labelled
    assert first.hash != other.hash


def test_a_file_lists_names(tmp_path):
    """One image per line; blank lines and order do not matter."""
    file = tmp_path / "labelled.txt"
    file.write_text("image-007\n\nimage-003\n")
    assert choose(IMAGES, str(file), seed=0).labelled == ("image-003", "image-007")


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ("0", "no image would be labelled"),
        ("1/1000", "no image would be labelled"),
        ("-3", "no image would be labelled"),
        ("368", "asks for 368 labelled images, there are 367"),
        ("3/2", "there are 367"),
        ("1/0", "neither a number"),
        ("a few", "neither a number"),
    ],
)
def test_impossible_requests_are_refused_with_value_and_way_out(labels, reason):
    """The message repeats what was asked for and says what would work."""
    with pytest.raises(UserError, match=reason) as error:
        choose(IMAGES, labels, seed=0)
    assert f"--labels {labels}" in str(error.value)
    assert "1 to 367" in str(error.value)


def test_an_unknown_name_is_refused_with_its_line(tmp_path):
    """File, line and name."""
    file = tmp_path / "labelled.txt"
    file.write_text("image-007\nimage-999\n")
    with pytest.raises(UserError, match=r"labelled\.txt:2.*image-999"):
        choose(IMAGES, str(file), seed=0)


@pytest.mark.parametrize("labels", ["20", "23"])
def test_classes_of_whole_images_get_equally_many_labels(labels):
    """Give or take one, although one class is three times as frequent as the others."""
    classes = np.array([0] * 3 + [1, 2], np.uint8).repeat(20)
    samples = Samples(NAMES[:100], np.zeros((100, 2), np.float32), classes)
    labelled = choose(samples, labels, seed=0).labelled
    counts = np.bincount([classes[NAMES.index(name)] for name in labelled])
    assert counts.sum() == int(labels)
    assert counts.max() - counts.min() <= 1
