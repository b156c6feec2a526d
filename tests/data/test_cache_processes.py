"""Decoding that is killed, done by several processes at once, or short of disk: what is left is whole or nothing."""

from __future__ import annotations

import os
import shutil
import signal
import sys

import numpy as np
import pytest
from PIL import Image

from data.decoded import cache_folder, photograph, refusal, train
from data.readers import digest
from forks import called, start

MOMENTS = {
    "it begins": ("open", "-new/pixels"),
    "it decodes the first image": ("open", "images/a.png"),
    "it decodes another": ("open", "images/d.png"),
    "it writes the index": ("open", "-new/index.json"),
    "it puts the new images into place": ("os.rename", "-new"),
    "it puts the old ones away": ("os.rename", "/train"),
}


@pytest.mark.parametrize(
    ("moment", "again"),
    [(moment, again) for moment in MOMENTS for again in (False, True) if again or "old ones" not in moment],
)
def test_a_killed_process_leaves_nothing_that_is_taken_for_a_cache(root, tmp_path, moment, again):
    """Killed when it decodes for the first time, or again since there is a new image."""
    if again:
        train(root)
        photograph(root / "train/images/f.png", 11)
    event, ending = MOMENTS[moment]
    arguments = {"root": str(root), "event": event, "ending": ending}
    killed = start(tmp_path, function="data.readers:read_until", arguments=arguments)
    assert killed.wait() == -signal.SIGKILL, killed.error
    samples = train(root)
    assert len(samples) == 5 + again
    for index, name in enumerate(samples.names):
        with Image.open(root / name) as image:
            assert np.array_equal(samples.image(index), np.asarray(image))
    assert {path.name for path in cache_folder(root).iterdir()} == {"train", ".train.lock"}


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "no locks"])
@pytest.mark.parametrize("again", [False, True], ids=["first time", "again"])
def test_processes_that_decode_at_once_all_succeed(root, tmp_path, again, locks):
    """Three of them, begun at the same moment, read the same; none of them leaves anything behind.

    Some file systems of clusters have no locks, and there three jobs of an array decode the same images.
    """
    if again:
        train(root)
    for seed in range(13, 60):
        photograph(root / "train/images" / f"{seed}.png", seed)
    answers = called(tmp_path, "data.readers:read_at_once", root=str(root), processes=3, locks=locks)
    assert answers == [digest(root)] * 3
    assert {path.name for path in cache_folder(root).iterdir()} == {"train", ".train.lock"}


def test_a_disk_that_is_too_small_is_refused_before_anything_is_decoded(root):
    """A hundred megapixels to an image, in hard links to one file: more than any disk here has room for."""
    large = root / "train/images/large-0.png"
    Image.new("1", (16_384, 16_384)).save(large, compress_level=0)
    free = shutil.disk_usage(root).free
    copies = free // (3 * 16_384**2) + 1
    if copies > 20_000:
        pytest.skip("the disk has room for too many images")
    for number in range(1, copies):
        os.link(large, large.with_name(f"large-{number}.png"))
    message = refusal(root)
    assert str(cache_folder(root)) in message
    assert f"{copies + 5} decoded images need" in message
    assert "--data.cache" in message
    assert [path.name for path in cache_folder(root).iterdir()] == [".train.lock"]


def test_a_disk_that_fills_up_is_reported_and_nothing_is_left_on_it(root, tmp_path):
    """The system refuses to write more than 4,000 bytes to a file, as a quota does."""
    message = called(tmp_path, "data.readers:refused", largest_file=4000, root=str(root))
    assert f"{cache_folder(root)}: decoded images cannot be kept there (File too large)" in message
    assert "--data.cache" in message
    assert [path.name for path in cache_folder(root).iterdir()] == [".train.lock"]


@pytest.mark.skipif(sys.platform != "linux", reason="gives up the rights of root by a call of Linux")
def test_a_cache_is_read_without_permission_to_write_there(root, tmp_path):
    """With its lock or without one; what would have to be decoded anew is refused."""
    cache, expected = cache_folder(root), digest(root)

    def read() -> list[object]:
        places = [cache, *cache.rglob("*")]
        modes = {place: place.stat().st_mode for place in places}
        try:
            for place in places:
                place.chmod(modes[place] & ~0o222)
            return called(tmp_path, "data.readers:read_unprivileged", root=str(root))
        finally:
            for place, mode in modes.items():
                place.chmod(mode)

    assert read() == expected
    (cache / ".train.lock").unlink()
    assert read() == expected
    assert not (cache / ".train.lock").exists()
    photograph(root / "train/images/f.png", 11)
    (refused,) = read()
    assert f"{cache}: decoded images cannot be kept there (Permission denied)" in refused
