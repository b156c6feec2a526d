"""What `streets` promises: scenes that are pure functions of their number, exact labels, and every class in plenty."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from oneway.common.terms import IGNORE
from oneway.data.streets import CLASSES, COLOURS, render

Scene = tuple[NDArray[np.uint8], NDArray[np.uint8]]
HEIGHT, WIDTH = 64, 128


@cache
def sixty_scenes() -> list[Scene]:
    """One set, made once for all tests."""
    return [render(5, index, HEIGHT, WIDTH) for index in range(60)]


def pixels_per_class() -> NDArray[np.int64]:
    """How many pixels each class has in each of the sixty scenes, of shape (scenes, classes)."""
    return np.array([np.bincount(label.ravel(), minlength=256)[: len(CLASSES)] for _, label in sixty_scenes()])


def test_each_class_has_a_name_and_a_colour_of_its_own() -> None:
    """A legend can be drawn, and read."""
    assert len(CLASSES) == len(COLOURS) == len(set(CLASSES)) == len(set(COLOURS)) == 9


def test_an_image_is_rgb_bytes_and_its_label_one_byte_for_each_pixel() -> None:
    """At any size asked for, whatever its proportions."""
    image, label = render(0, 0, 48, 80)
    assert image.shape == (48, 80, 3)
    assert label.shape == (48, 80)
    assert image.dtype == label.dtype == np.uint8


def test_a_scene_does_not_depend_on_the_scenes_made_before_it() -> None:
    """Made in either order, the scenes are equal to the last bit."""
    forwards = [render(3, index, HEIGHT, WIDTH) for index in range(4)]
    backwards = [render(3, index, HEIGHT, WIDTH) for index in reversed(range(4))][::-1]
    for (image, label), (image_again, label_again) in zip(forwards, backwards, strict=True):
        np.testing.assert_array_equal(image, image_again)
        np.testing.assert_array_equal(label, label_again)


def test_other_seeds_and_other_indices_give_other_scenes() -> None:
    """Training and validation sets, which differ by seed, share no scene."""
    first, other_seed, other_index = (render(*number, HEIGHT, WIDTH)[1] for number in ((0, 1), (1, 1), (0, 2)))
    assert (first != other_seed).mean() > 0.1
    assert (first != other_index).mean() > 0.1


def test_a_scene_is_the_same_at_every_size() -> None:
    """The label at 64 rows is the label at 192 rows read at the same spots; three being odd, the spots coincide."""
    for index in range(8):
        image, label = render(2, index, HEIGHT, WIDTH)
        large_image, large_label = render(2, index, 3 * HEIGHT, 3 * WIDTH)
        assert (label == large_label[1::3, 1::3]).mean() > 0.95
        shrunk = large_image.reshape(HEIGHT, 3, WIDTH, 3, 3).mean((1, 3))
        assert np.abs(shrunk - image).mean() < 16


def test_labels_are_classes_or_ignore() -> None:
    """No other value may reach a loss."""
    for _, label in sixty_scenes():
        assert set(np.unique(label)) <= {*range(len(CLASSES)), IGNORE}


def test_the_own_car_is_ignored_in_some_scenes_and_absent_from_others() -> None:
    """Its bonnet is of no class and takes little room."""
    ignored = np.array([(label == IGNORE).mean() for _, label in sixty_scenes()])
    assert 0.2 < (ignored > 0).mean() < 0.7
    assert ignored.max() < 0.15


def test_every_class_is_seen_in_most_scenes() -> None:
    """Seen means at least six pixels: enough to learn from."""
    seen = dict(zip(CLASSES, (pixels_per_class() >= 6).mean(0), strict=True))
    assert min(seen.values()) > 0.85, seen
    assert seen["sky"] > 0.97


def test_no_class_is_vanishing_and_none_swallows_the_picture() -> None:
    """The share of pixels of each class lies where a street's would."""
    share = dict(zip(CLASSES, pixels_per_class().sum(0) / (60 * HEIGHT * WIDTH), strict=True))
    expected = {
        "sky": (0.09, 0.19),
        "building": (0.18, 0.33),
        "road": (0.20, 0.36),
        "pavement": (0.06, 0.15),
        "tree": (0.04, 0.13),
        "car": (0.04, 0.10),
        "person": (0.012, 0.035),
        "pole": (0.008, 0.026),
        "sign": (0.006, 0.022),
    }
    for name, (least, most) in expected.items():
        assert least < share[name] < most, (name, share[name])


def test_the_sky_is_above_and_the_road_below() -> None:
    """On average over its pixels, sky is above buildings and these are above the road."""
    for _, label in sixty_scenes():
        mean_rows = [np.nonzero(label == CLASSES.index(name))[0].mean() for name in ("sky", "building", "road")]
        assert mean_rows == sorted(mean_rows)


def test_images_are_neither_flat_nor_blown_out() -> None:
    """Even by night and in fog there is something to see."""
    for image, _ in sixty_scenes():
        assert image.std() > 12
        assert ((image == 0) | (image == 255)).mean() < 0.45


def test_the_light_differs_widely_between_scenes() -> None:
    """What makes a few labelled scenes too few."""
    brightness = np.array([image.mean() for image, _ in sixty_scenes()])
    warmth = np.array([image[..., 0].mean() - image[..., 2].mean() for image, _ in sixty_scenes()])
    assert brightness.std() > 20
    assert warmth.std() > 10
