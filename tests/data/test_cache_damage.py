"""Decoded images that are damaged: noticed as they are read, decoded again, and put back."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from data.decoded import cache_folder, photograph, refusal, same, settings, train
from oneway.common.errors import UserError
from oneway.data import load
from oneway.data.cache import decoded as cache
from oneway.data.dataset import Samples
from oneway.engine.store import Store
from reliability.wrong_caches import overwrite, sealed


def said(root: Path) -> tuple[Samples, Callable[[], str]]:
    """The training set, and what has been said so far of reading it."""
    text = io.StringIO()
    samples = load(settings(root), Console(file=text, width=1000)).read("train")
    return samples, text.getvalue


@pytest.fixture
def decoded(root) -> Path:
    """The folder of a training set that has been decoded."""
    train(root)
    return cache_folder(root) / "train"


@pytest.mark.parametrize("part", ["pixels", "labels"])
def test_every_way_to_read_notices_damage(root, decoded, part):
    """Whole images, parts of them, everything at once; one line says where, and the file is as it was."""
    kept = train(root)
    right = {"pixels": kept.pixels[:], "labels": kept.labels[:]}
    start = int(kept.starts[1])
    content = (decoded / part).read_bytes()
    ways: dict[str, Callable[[Samples], object]] = {
        "an image": lambda samples: samples.image(1) if part == "pixels" else samples.label_map(1),
        "a part of it": lambda samples: getattr(samples, part)[start + 5 : start + 20],
        "across a border": lambda samples: getattr(samples, part)[start - 5 : start + 20],
        "everything": lambda samples: getattr(samples, part)[:],
        "a store": lambda samples: getattr(Store.hold(samples, torch.device("cpu")), part).numpy(),
    }
    expected = {
        "an image": (kept.image(1) if part == "pixels" else kept.label_map(1)).copy(),
        "a part of it": right[part][start + 5 : start + 20],
        "across a border": right[part][start - 5 : start + 20],
        "everything": right[part],
        "a store": right[part],
    }
    for way, read in ways.items():
        overwrite(decoded / part, (start + 7) * (3 if part == "pixels" else 1), bytes([99] * 4))
        samples, text = said(root)
        assert np.array_equal(read(samples), expected[way]), way
        assert text() == (
            f"Note: {decoded / part} is damaged at {samples.names[1]}: what is not as it was is decoded again.\n"
        )
        assert (decoded / part).read_bytes() == content, way


def test_much_damage_is_one_line(root, decoded):
    """All pixels and all labels are lost: one for each file."""
    right = train(root).pixels[:]
    for part in ("pixels", "labels"):
        (decoded / part).write_bytes(bytes([88]) * (decoded / part).stat().st_size)
    samples, text = said(root)
    assert np.array_equal(samples.pixels[:], right)
    assert set(np.unique(samples.labels[:])) == {0, 1, 2}
    assert text().count("\n") == 2


def test_what_is_altered_after_it_was_read_is_noticed(root, decoded):
    """As by another program, while images are streamed."""
    samples, text = said(root)
    right = samples.image(0)
    assert not text()
    overwrite(decoded / "pixels", 10, b"altered")
    assert np.array_equal(samples.image(0), right)
    assert "is damaged at train/images/a.png" in text()


def test_a_cache_that_cannot_be_written_to_is_read_all_the_same(root, decoded, monkeypatch):
    """The image is decoded each time."""
    samples = train(root)
    right = samples.image(1)
    overwrite(decoded / "pixels", 3 * int(samples.starts[1]), b"altered")

    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "pwrite", refuse)
    for _ in range(2):
        assert np.array_equal(samples.image(1), right)


def test_labels_that_stand_for_nothing_never_come_through(root, decoded):
    """Not even with checksums that were made to fit them."""
    right = train(root).labels[:]
    tree = json.loads((decoded / "index.json").read_bytes())
    del tree["seal"]
    count = right[: 20 * 30].size
    values = np.full(count, 77, np.uint8)
    overwrite(decoded / "labels", 0, values.tobytes())
    tree["items"][0]["checksums"][1] = cache.checksum(values)
    (decoded / "index.json").write_bytes(sealed(tree))
    with pytest.raises(UserError, match="decoding it again gives others"):
        train(root).labels[:]
    assert np.array_equal(train(root).labels[:], right)


def test_an_image_that_has_changed_since_is_not_put_in_its_place(root, decoded):
    """The damage is found, and what the image is now is another one: that is said."""
    samples = train(root)
    overwrite(decoded / "pixels", 0, b"altered")
    photograph(root / "train/images/a.png", 9)
    with pytest.raises(UserError, match=r"not as it was when it was decoded.*a\.png has other content"):
        samples.image(0)


BROKEN = {
    "not JSON": (lambda content: b"[" * 10, "is damaged (index.json is not as it was written)"),
    "a byte less": (lambda content: content[:-1], "is damaged (index.json is not as it was written)"),
    "another digit": (lambda content: content.replace(b'"size": [20', b'"size": [21', 1), "is damaged (index.json is"),
    "no items": (lambda content: sealed({"format": 3, "made": "2026"}), "is damaged (items in index.json)"),
    "an earlier version": (lambda content: b'{"format": 2, "items": []}', "was made by another version of oneway"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_index_that_is_not_as_it_was_is_said_and_replaced(root, decoded, what):
    """Nothing of it is used; the second time, all is in order."""
    before = train(root)
    change, problem = BROKEN[what]
    (decoded / "index.json").write_bytes(change((decoded / "index.json").read_bytes()))
    after, text = said(root)
    assert same(after, before)
    assert text().startswith(f"Note: {decoded} {problem}")
    assert text().count("decoded again") == 1
    assert not said(root)[1]()


def test_an_index_that_cannot_be_read_is_no_damage(root, decoded, monkeypatch):
    """A moment later it may be read again: nothing is removed."""
    read = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.name == "index.json":
            raise OSError(5, "Input/output error")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        before = (decoded / "index.json").stat()
        assert "Input/output error" in refusal(root)
    assert (decoded / "index.json").stat() == before


@pytest.mark.parametrize("kind", ["images", "masks"])
@pytest.mark.parametrize("how", ["replaced", "written over", "written over, in the same moment"])
def test_a_file_that_is_replaced_while_it_is_decoded_is_decoded_again(root, monkeypatch, kind, how):
    """Pixels and digest are those of one file: the new one."""
    victim, other = root / "train" / kind / "a.png", root / "train" / kind / "other"
    (root / "train" / kind / "d.png").rename(other)  # the same kind of file, in another size
    with Image.open(other) as picture:
        picture.crop((0, 0, 30, 20)).save(other, "PNG")
    (root / "train/images/d.png").unlink(missing_ok=True)
    (root / "train/masks/d.png").unlink(missing_ok=True)
    if "moment" not in how:
        os.utime(victim, (1, 1))
    decode, done = cache.decode_and_survey, []

    def disturbed(listing, item):
        found = decode(listing, item)
        if item.name.endswith("a.png") and not done:
            done.append(item)
            if how == "replaced":
                other.replace(victim)
            else:
                victim.write_bytes(other.read_bytes())
        return found

    monkeypatch.setattr(cache, "decode_and_survey", disturbed)
    samples = train(root)
    monkeypatch.undo()
    assert done
    with Image.open(victim) as picture:
        found = samples.image(0) if kind == "images" else samples.label_map(0)
        assert np.array_equal(found, np.asarray(picture))
    assert same(train(root), samples)


def test_a_file_that_never_rests_is_named(root, monkeypatch):
    """Nothing is kept of it."""
    decode, seeds = cache.decode_and_survey, iter(range(20, 100, 3))

    def disturbed(listing, item):
        found = decode(listing, item)
        if item.name.endswith("e.jpg"):
            photograph(root / item.name, next(seeds))
        return found

    monkeypatch.setattr(cache, "decode_and_survey", disturbed)
    assert f"{root}/train/images/e.jpg: it or its mask changes while it is read" in refusal(root)
    assert not (cache_folder(root) / "train").exists()


def test_outlines_that_change_after_they_were_listed_are_not_taken_for_the_new_ones(tmp_path, outlines):
    """They are read with the list of files, and their digest later."""
    root = tmp_path / "outlined"
    dataset = load(settings(root))
    threading.Event().wait(0.05)
    outlines["annotations"].pop()
    (root / "labels.json").write_text(json.dumps(outlines))
    with pytest.raises(UserError, match="changes while it is read"):
        dataset.read("train")
    assert (load(settings(root)).read("train").labels[:] == 1).any()


def test_a_clock_that_is_behind_that_of_the_disk_is_said(tmp_path, outlines, monkeypatch):
    """As of a file server; an image that nobody touches was said to change."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 300)
    with pytest.raises(UserError, match=r"labels.json: .* \d{3} s in the future.*[cC]lock"):
        load(settings(tmp_path / "outlined")).read("train")


def test_several_processes_may_mend_the_same_cache(root, decoded):
    """Threads here, with files of their own; all read the right values, whoever puts them back."""
    right = train(root).pixels[:]
    (decoded / "pixels").write_bytes(bytes(right.nbytes))
    readers = [train(root) for _ in range(4)]
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda reader=reader: found.append(reader.pixels[:])) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.array_equal(values, right) for values in found)
