"""Facts about which images count as labelled."""

from __future__ import annotations

import pytest

from oneway.data.splits import choose
from oneway.errors import UserError

NAMES = tuple(f"image-{index:03d}" for index in range(367))


@pytest.mark.parametrize(("labels", "count"), [("1/8", 45), ("1/4", 91), ("1/1", 367), ("45", 45), ("1", 1)])
def test_a_fraction_is_rounded_down_and_a_number_is_itself(labels, count):
    """1/8 of CamVid's 367 training images are 45."""
    split = choose(NAMES, labels, seed=0)
    assert len(set(split.labelled)) == count
    assert set(split.labelled) <= set(NAMES)


def test_every_image_serves_without_its_label():
    """The unlabelled set includes the labelled images, as in the paper."""
    assert choose(NAMES, "12", seed=0).unlabelled == NAMES


def test_the_seed_decides():
    """The same seed gives the same images and hash; another one others."""
    first, again, other = (choose(NAMES, "12", seed) for seed in (0, 0, 1))
    assert first == again
    assert first.hash == again.hash
    assert first.labelled != other.labelled
    assert first.hash != other.hash


def test_a_file_lists_names(tmp_path):
    """One image per line; blank lines and order do not matter."""
    file = tmp_path / "labelled.txt"
    file.write_text("image-007\n\nimage-003\n")
    assert choose(NAMES, str(file), seed=0).labelled == ("image-003", "image-007")


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
        choose(NAMES, labels, seed=0)
    assert f"--labels {labels}" in str(error.value)
    assert "1 to 367" in str(error.value)


def test_an_unknown_name_is_refused_with_its_line(tmp_path):
    """File, line and name."""
    file = tmp_path / "labelled.txt"
    file.write_text("image-007\nimage-999\n")
    with pytest.raises(UserError, match=r"labelled\.txt:2.*image-999"):
        choose(NAMES, str(file), seed=0)
