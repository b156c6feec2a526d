"""Facts about which images count as labelled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oneway.common.errors import UserError
from oneway.data.dataset import Samples
from oneway.data.splits import choose

NAMES = tuple(f"image-{index:03d}" for index in range(367))
IMAGES = Samples.stacked(NAMES, np.zeros((367, 2, 2, 3), np.uint8), np.zeros((367, 2, 2), np.uint8))


def images(*labelled: str, unlabelled: tuple[str, ...] = ()) -> Samples:
    """Images of 2×2 pixels with these names."""
    names = (*labelled, *unlabelled)
    count = len(names)
    samples = Samples.stacked(names, np.zeros((count, 2, 2, 3), np.uint8), np.zeros((count, 2, 2), np.uint8))
    return replace(samples, labels=samples.labels[: 4 * len(labelled)], labelled=len(labelled))


@pytest.mark.parametrize(
    ("labels", "count"), [("1/8", 45), ("1/4", 91), ("1/1", 367), ("all", 367), ("45", 45), ("1", 1)]
)
def test_a_fraction_is_rounded_down_and_a_number_is_itself(labels, count):
    """1/8 of CamVid's 367 training images are 45."""
    split = choose(IMAGES, labels, seed=0)
    assert len(set(split.labelled)) == count
    assert set(split.labelled) <= set(NAMES)


def test_every_image_serves_without_its_label():
    """The unlabelled set includes the labelled images, as in the paper."""
    assert choose(IMAGES, "12", seed=0).unlabelled == NAMES


@pytest.mark.parametrize(("labels", "count"), [("all", 4), ("1/2", 2), ("3", 3)])
def test_only_images_with_labels_are_chosen_and_counted(labels, count):
    """Half of four labelled images are two, however many come without; those serve all the same."""
    samples = images("a", "b", "c", "d", unlabelled=tuple("efghijkl"))
    for seed in range(5):
        split = choose(samples, labels, seed)
        assert len(split.labelled) == count
        assert set(split.labelled) <= set("abcd")
        assert split.unlabelled == samples.names


def test_a_set_without_labels_is_refused():
    """Nothing could tell the classes."""
    with pytest.raises(UserError, match="No training image has labels"):
        choose(images(unlabelled=("a", "b")), "all", seed=0)


def test_the_seed_decides():
    """The same seed gives the same images and hash; another one others."""
    first, again, other = (choose(IMAGES, "12", seed) for seed in (0, 0, 1))
    assert first == again
    assert first.hash == again.hash
    assert first.labelled != other.labelled
    assert first.hash != other.hash


def test_five_seeds_draw_independently():
    """Two draws of 91 in 367 share about 91²/367 = 23 images: neither the same ones again, nor avoided ones."""
    splits = [set(choose(IMAGES, "1/4", seed).labelled) for seed in range(5)]
    shared = [len(splits[i] & splits[j]) for i in range(5) for j in range(i)]
    assert 10 < min(shared) <= max(shared) < 36


def test_splits_stay_as_they_were():
    """A split that was published by its seed is the same in every version."""
    assert choose(IMAGES, "6", seed=0).labelled == tuple(
        f"image-{index:03d}" for index in (45, 139, 196, 216, 314, 324)
    )
    assert choose(IMAGES, "6", seed=4).labelled == tuple(f"image-{index:03d}" for index in (47, 56, 155, 207, 336, 362))


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
        ("x" * 5000, "neither a number"),
        ("\0", "neither a number"),
    ],
)
def test_impossible_requests_are_refused_with_value_and_way_out(labels, reason):
    """The message repeats what was asked for and says what would work."""
    with pytest.raises(UserError, match=reason) as error:
        choose(IMAGES, labels, seed=0)
    assert f"--labels {labels}" in str(error.value)
    assert "1 to 367" in str(error.value)


@pytest.mark.parametrize("labels", ["20", "23"])
def test_classes_of_whole_images_get_equally_many_labels(labels):
    """Give or take one, although one class is three times as frequent as the others."""
    classes = np.array([0] * 3 + [1, 2], np.uint8).repeat(20)
    for inputs in (np.zeros((100, 2), np.float32), np.zeros((100, 4, 4, 3), np.uint8)):
        labelled = choose(Samples.stacked(NAMES[:100], inputs, classes), labels, seed=0).labelled
        counts = np.bincount([classes[NAMES.index(name)] for name in labelled])
        assert counts.sum() == int(labels)
        assert counts.max() - counts.min() <= 1


CITIES = (
    "leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png",
    "leftImg8bit/train/bochum/bochum_000000_000313_leftImg8bit.png",
    "leftImg8bit/train/ulm/ulm_000000_000019_leftImg8bit.png",
)
FOLDERS = ("front/0001.jpg", "front/0002.jpg", "rear/0001.jpg", "rear/my photo, no 3.jpg")


def listed(tmp_path, samples: Samples, content: str | bytes) -> tuple[str, ...]:
    """The labelled images that a file of this content gives."""
    file = tmp_path / "labelled.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return choose(samples, str(file), seed=0).labelled


def refusal(tmp_path, samples: Samples, content: str | bytes) -> str:
    with pytest.raises(UserError) as error:
        listed(tmp_path, samples, content)
    message = str(error.value)
    assert str(tmp_path / "labelled.txt") in message
    return message


def test_a_file_lists_names(tmp_path):
    """One image per line; blank lines, repetitions and order do not matter."""
    assert listed(tmp_path, IMAGES, "image-007\n\nimage-003\nimage-007\n") == ("image-003", "image-007")


@pytest.mark.parametrize(
    "content",
    [
        "{0}\n{2}\n",
        "{0} gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png\n{2} gtFine/train/ulm/ulm_labels.png",
        "{0},gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png\r\n{2}, gtFine/x.png\r\n",
        "\ufeff# the first and the last\n\n  {2}\t\n# {1}\n{0}\n",
        "/data/cityscapes/{0}\n../cityscapes/{2}\n",
        "C:\\cityscapes\\leftImg8bit\\train\\aachen\\aachen_000000_000019_leftImg8bit.png\nulm/../ulm/{2}",
        "aachen_000000_000019_leftImg8bit.png\nulm/ulm_000000_000019_leftImg8bit.png",
        "aachen_000000_000019_leftImg8bit\nimages/ulm_000000_000019_leftImg8bit.jpg labels/other.png",
    ],
)
def test_lists_of_other_projects_are_understood(tmp_path, content):
    """With masks behind the images, comments, other ends of lines, other roots, fewer folders, other extensions."""
    assert listed(tmp_path, images(*CITIES), content.format(*CITIES)) == (CITIES[0], CITIES[2])


@pytest.mark.parametrize(
    ("entry", "image"),
    [
        ("rear/0001.jpg", "rear/0001.jpg"),
        ("camera/rear/0001.jpg", "rear/0001.jpg"),
        ("camera/rear/0001.png", "rear/0001.jpg"),
        ("rear/0001", "rear/0001.jpg"),
        ("0002.jpg masks/0001.png", "front/0002.jpg"),
        ("rear/my photo, no 3.jpg", "rear/my photo, no 3.jpg"),
        ("my photo, no 3.jpg, masks/my photo, no 3.png", "rear/my photo, no 3.jpg"),
    ],
)
def test_the_path_with_the_longest_common_end_is_chosen(tmp_path, entry, image):
    """Two folders have a 0001.jpg, and a name may have what separates others."""
    assert listed(tmp_path, images(*FOLDERS), entry) == (image,)


def test_an_exact_name_wins_over_the_ends_of_others(tmp_path):
    """`x.png` is an image of its own, though two others end alike."""
    assert listed(tmp_path, images("a/x.png", "b/x.png", "x.png"), "x.png") == ("x.png",)


@pytest.mark.parametrize(
    ("content", "reasons"),
    [
        ("front/0001.jpg\n0001.jpg\n", [":2: '0001.jpg' could mean 'front/0001.jpg' or 'rear/0001.jpg'", "path"]),
        ("# x\n\n0001 masks", [":3: there is no training image '0001 masks'", "such as 'front/0001.jpg'"]),
        ("front/0003.jpg masks/0002.jpg", [":1: there is no training image 'front/0003.jpg'"]),
        ("rear/extra.jpg", [":1: there is no training image 'rear/extra.jpg'"]),
        ("extra/0002.jpg", [":1: 'extra/0002.jpg' has no labels"]),
        ("a/0002.png\nb/0002.png", [":2: 'b/0002.png' and, before it, 'a/0002.png' both mean 'front/0002.jpg'"]),
        ("/etc/passwd", [":1: there is no training image '/etc/passwd'"]),
        ("..", [":1: there is no training image '..'"]),
        ("# nothing\n", ["lists no image"]),
        (b"", ["lists no image"]),
        (b"\xff\xfeo\0n\0e\0", ["not a text file in UTF-8"]),
        (b"\x89PNG\r\n\x1a\n", ["not a text file in UTF-8"]),
    ],
)
def test_what_a_list_gets_wrong_is_said_with_its_line(tmp_path, content, reasons):
    """File, line, entry and the way out."""
    message = refusal(tmp_path, images(*FOLDERS, unlabelled=("extra/0002.jpg",)), content)
    for reason in reasons:
        assert reason in message


@pytest.mark.parametrize(
    "content", ["a/" * 2**20 + "x.png", ". png" * 2**20, "\n" * 2**20, "x" * 2**24 + "\n"], ids=range(4)
)
def test_a_hostile_list_is_refused_in_a_few_words(tmp_path, content):
    """A path of a million folders, which would never end if each looked at all others; long lines; too large a file."""
    assert len(refusal(tmp_path, IMAGES, content)) < 1000


def test_an_entry_that_validates_is_said_to(tmp_path):
    """It is no training image, but it is there; lists of other projects name such ones where a hold-out was drawn."""
    file = tmp_path / "labelled.txt"
    file.write_text("2007_000032\n2007_000033\n")
    train = images("JPEGImages/2007_000032.jpg")
    with pytest.raises(UserError, match=r":2: '2007_000033' validates, and cannot train\. .* with `val`"):
        choose(train, str(file), seed=0, validation=("JPEGImages/2007_000033.jpg",))
    with pytest.raises(UserError, match="there is no training image '2007_000033'"):
        choose(train, str(file), seed=0)
