"""Facts about decoding listed items, what a survey tells, and which images pass for the same."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from oneway.common.terms import IGNORE
from oneway.data.check.duplicates import ALIKE, BLOCK, nearest
from oneway.data.check.survey import decode_and_survey, fingerprint, survey, survey_all
from oneway.data.dataset import Item, Listing

ORIENTATION = 0x0112


def picture(seed: int, height: int = 48, width: int = 64) -> Image.Image:
    """Soft blobs of colour, others for each seed."""
    blobs = np.random.default_rng(seed).integers(256, size=(6, 8, 3), dtype=np.uint8)
    return Image.fromarray(blobs).resize((width, height), Image.Resampling.BICUBIC)


def listing(folder: Path, *items: Item, reduction: int = 1) -> Listing:
    """Of items whose masks are greyscale files of class indices."""
    return Listing(
        root=folder,
        classes=("ground", "thing"),
        colours=((0, 0, 0), (255, 0, 0)),
        train=items,
        val=(),
        read_labels=lambda item: np.asarray(Image.open(item.mask)),
        reduction=reduction,
    )


def save(folder: Path, image: np.ndarray | Image.Image, mask: np.ndarray | None = None, **options: object) -> Item:
    """An item of its own in the folder."""
    name = f"{len(list(folder.iterdir())):03d}"
    path, labels = folder / f"{name}.png", folder / f"{name}_mask.png"
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(path, **options)
    if mask is None:
        return Item(path.name, path)
    Image.fromarray(mask.astype(np.uint8)).save(labels)
    return Item(path.name, path, labels)


def fingerprint_of(image: Image.Image) -> bytes:
    return fingerprint(np.asarray(image))


def test_what_is_stored_is_decoded(tmp_path):
    """Pixels and labels as they were written, and no labels without a mask."""
    pixels, mask = np.asarray(picture(0)), np.random.default_rng(0).integers(2, size=(48, 64))
    with_mask, without = save(tmp_path, pixels, mask), save(tmp_path, pixels)
    _, image, labels = decode_and_survey(listing(tmp_path), with_mask)
    assert np.array_equal(image, pixels)
    assert np.array_equal(labels, mask)
    assert decode_and_survey(listing(tmp_path), without)[2] is None


def test_half_resolution_averages_pixels_and_picks_labels(tmp_path):
    """Of 3×4 pixels: the last row has no second one and stands for itself; (0 + 1 + 1 + 1) / 4 rounds to 1."""
    grey = np.array([[0, 1, 10, 20], [1, 1, 30, 40], [7, 9, 50, 50]], dtype=np.uint8)
    mask = np.array([[0, 1, 1, 0], [1, 1, 1, 1], [255, 0, 1, 0]])
    item = save(tmp_path, np.stack([grey] * 3, axis=-1), mask)
    _, image, labels = decode_and_survey(listing(tmp_path, reduction=2), item)
    assert image[..., 0].tolist() == [[1, 25], [8, 50]]
    assert labels.tolist() == [[0, 1], [255, 1]]


def test_a_mask_of_another_size_is_refused_with_both_files_and_sizes(tmp_path):
    """Width before height, as programs show it."""
    item = save(tmp_path, picture(0), np.zeros((40, 64)))
    found, _, labels = decode_and_survey(listing(tmp_path), item)
    assert f"{item.mask}: 64×40 labels for the 64×48 pixels of {item.image}" in found.problem
    assert (found.part, labels) == ("size", None)


def test_a_mask_turned_like_its_image_is_told_from_one_that_is_not(tmp_path):
    """Orientation 6 stores a portrait lying on its side, 64×48; the upright mask is 48×64, and one of 64×48 is not."""
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    upright = save(tmp_path, picture(0), np.zeros((64, 48)), exif=exif)
    lying = save(tmp_path, picture(0), np.zeros((48, 64)), exif=exif)
    turned = save(tmp_path, picture(0), np.zeros((64, 48)))
    _, image, labels = decode_and_survey(listing(tmp_path), upright)
    assert image.shape[:2] == labels.shape == (64, 48)
    assert "EXIF orientation 6" in decode_and_survey(listing(tmp_path), lying)[0].problem
    assert "turned by 90°" in decode_and_survey(listing(tmp_path), turned)[0].problem


def test_a_survey_counts_what_is_there(tmp_path):
    """Three pixels of class 1, one ignored, two of class 0, in an image of 2×3."""
    mask = np.array([[1, 1, 0], [IGNORE, 1, 0]])
    item = save(tmp_path, picture(0, 2, 3), mask)
    found, *_ = decode_and_survey(listing(tmp_path), item)
    assert (found.name, found.size, found.labels, found.problem) == (item.name, (2, 3), {0: 2, 1: 3, IGNORE: 1}, None)


def test_a_digest_stands_for_pixels_and_their_shape(tmp_path):
    """The same in another format and under another name; another for one grey value, and for other row lengths."""
    pixels = np.asarray(picture(0)).copy()
    (tmp_path / "first").mkdir()
    Image.fromarray(pixels).save(tmp_path / "first" / "a.png")
    Image.fromarray(pixels).save(tmp_path / "b.bmp")
    items = [Item(name, tmp_path / name) for name in ("first/a.png", "b.bmp")]
    a, b = (decode_and_survey(listing(tmp_path), item)[1] for item in items)
    digests = [survey(items[0], image, image, None).digest for image in (a, b, pixels.reshape(64, 48, 3))]
    pixels[40, 2, 1] ^= 1
    digests.append(survey(items[0], pixels, pixels, None).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_what_cannot_be_read_is_told_and_the_rest_is_surveyed(tmp_path):
    """In any order of failures, with progress up to the last."""
    good, bad = save(tmp_path, picture(0)), save(tmp_path, picture(1))
    bad.image.write_bytes(b"no image")
    done = []
    surveys = survey_all(listing(tmp_path), [bad, good], lambda: done.append(1))
    assert surveys[good.name].problem is None
    assert str(bad.image) in surveys[bad.name].problem
    assert surveys[bad.name].part == "image"
    assert len(done) == 2


def compressed(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=30)
    return Image.open(buffer).convert("RGB")


@pytest.mark.parametrize(
    "change",
    [
        compressed,
        lambda image: image.resize((100, 80)),
        lambda image: ImageEnhance.Brightness(image).enhance(0.8),
        lambda image: ImageEnhance.Color(image).enhance(0.0),
        lambda image: image.transform(image.size, Image.Transform.AFFINE, (1, 0, 1, 0, 1, 0)),
    ],
    ids=["compressed", "resized", "darker", "grey", "shifted by a pixel"],
)
def test_a_changed_copy_is_found_among_others(change):
    """Whichever image was copied; and no image that was not is taken for one."""
    pool = [fingerprint_of(picture(seed)) for seed in range(60)]
    index, similarity = nearest(pool, [fingerprint_of(change(picture(seed))) for seed in range(0, 60, 7)])
    assert index.tolist() == list(range(0, 60, 7))
    assert (similarity >= ALIKE).all()
    others = nearest(pool, [fingerprint_of(change(picture(seed))) for seed in range(100, 130)])[1]
    assert (others < ALIKE).all()


def test_two_images_are_enough_to_compare():
    """The smallest sets: what all images share is not known there."""
    one, same, other = fingerprint_of(picture(0)), fingerprint_of(compressed(picture(0))), fingerprint_of(picture(1))
    assert nearest([one], [same])[1][0] >= ALIKE
    assert nearest([one], [other])[1][0] < ALIKE


def test_a_fixed_background_makes_no_duplicates_but_an_unchanged_scene_does():
    """A camera on a tripod: with a small thing in another place each time, or with nothing but noise."""
    generator = np.random.default_rng(0)
    scene = np.asarray(picture(0, 128, 128)).astype(int)
    things, still = [], []
    for place in generator.permutation(64):
        shot = scene + generator.normal(0, 3, scene.shape)
        still.append(fingerprint_of(Image.fromarray(shot.clip(0, 255).astype(np.uint8))))
        top, left = 16 * np.array(divmod(place, 8))
        shot[top : top + 16, left : left + 16] += 80
        things.append(fingerprint_of(Image.fromarray(shot.clip(0, 255).astype(np.uint8))))
    assert (nearest(still[:50], still[50:])[1] >= ALIKE).all()
    assert (nearest(things[:50], things[50:])[1] < ALIKE).all()


def test_the_nearest_of_many_is_found_in_any_block():
    """Wherever in the pool it is: every tenth of what is more than two blocks."""
    pool = list(np.random.default_rng(0).integers(256, size=(2 * BLOCK + 10, 256), dtype=np.uint8))
    index, similarity = nearest([cells.tobytes() for cells in pool], [cells.tobytes() for cells in pool[::10]])
    assert index.tolist() == list(range(0, len(pool), 10))
    assert similarity.tolist() == pytest.approx([1.0] * len(index))


def test_empty_sets_have_no_duplicates():
    """Empty splits are no error."""
    assert len(nearest([], [])[0]) == 0
    assert nearest([], [bytes(256)])[1][0] < ALIKE
