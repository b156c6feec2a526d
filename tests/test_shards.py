"""`oneway shards` packs a folder as WebDataset has it; `oneway check` looks at some images of what came of it."""

from __future__ import annotations

import json
import shutil
import tarfile

import numpy as np
import pytest
from PIL import Image

from oneway.cli import app
from oneway.common.errors import UserError
from oneway.data.pool.reader import Broken
from oneway.data.pool.shard_index import images_of
from oneway.tools.shards import pack
from pools import QUIET, break_some, opened, photograph, write_images


@pytest.fixture
def folder(tmp_path):
    return write_images(tmp_path / "images")


def test_shards_have_the_files_of_the_folder(folder, tmp_path):
    """Byte by byte, in order of name, so many in each; `tarfile` reads them, and packing again gives the same bytes."""
    assert pack(folder, tmp_path / "one", 5, QUIET)[:2] == (12, 3)
    found = []
    for shard in sorted((tmp_path / "one").glob("*.tar")):
        with tarfile.open(shard) as tar:
            found += [(info.name, tar.extractfile(info).read()) for info in tar]
    assert found == [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in sorted(folder.rglob("*.jpg"))]
    pack(folder, tmp_path / "other", 5, QUIET)
    for shard in (tmp_path / "one").glob("*.tar"):
        assert shard.read_bytes() == (tmp_path / "other" / shard.name).read_bytes()


def test_packed_shards_need_no_indexing(folder, tmp_path, monkeypatch):
    """Their index lies beside them; that of a part of them is taken from it."""
    pack(folder, tmp_path / "shards", 5, QUIET)
    expected = opened(folder, tmp_path / "cache").record
    monkeypatch.setattr("oneway.data.pool.shard_index.images_of", lambda *given: pytest.fail("a shard is read"))
    assert opened(tmp_path / "shards", tmp_path / "cache").record == expected
    assert len(opened(tmp_path / "shards/{00001..00002}.tar", tmp_path / "cache")) == 7


def test_an_image_that_is_damaged_in_its_shard_is_not_trained_on(folder, tmp_path):
    """Its checksum is in the index, even where it could be decoded."""
    pack(folder, tmp_path / "shards", 12, QUIET)
    shard = tmp_path / "shards/00000.tar"
    pool = opened(tmp_path / "shards", tmp_path / "cache")
    content = bytearray(shard.read_bytes())
    offset, size = (int(pool.index.entries(3)[0][column]) for column in ("offset", "size"))
    content[offset + size // 2] ^= 1
    shard.write_bytes(content)
    assert pool.read(2, 0, lambda size: (0, 0, *size)).image == 2
    assert pool.read(3, 0, lambda size: (0, 0, *size)).image != 3
    assert list(pool.broken) == [3]
    assert pool.broken[3] == f"{pool.name(3)}: damaged; its checksum differs from the index."


def test_a_file_that_is_too_large_for_an_image_says_so(folder, tmp_path, monkeypatch):
    """In a shard or in a folder; and one that is empty."""
    monkeypatch.setattr("oneway.data.pool.reader.MOST_BYTES", 1000)
    pack(folder, tmp_path / "shards", 12, QUIET)
    for pool in (opened(tmp_path / "shards", tmp_path / "cache"), opened(folder, tmp_path / "cache")):
        for number in range(2):
            with pytest.raises(Broken, match=r"jpg: has \d+ bytes, larger than 1000, the most for an image"):
                pool.decode(number)
    (tmp_path / "images/a/000.jpg").write_bytes(b"")
    with pytest.raises(Broken, match=r"a/000.jpg: an empty file"):
        opened(folder, tmp_path / "cache", refresh=True).decode(0)


def test_packing_goes_on_where_it_was_interrupted(folder, tmp_path, monkeypatch):
    """Complete shards stay; one that was being written is written again."""
    out, written = tmp_path / "shards", []
    from oneway.tools import shards as packing

    write = packing._write
    with monkeypatch.context() as patch:

        def interrupted(shard, images):
            if written:
                shard.with_name(f"{shard.name}.new").write_bytes(b"half")
                raise KeyboardInterrupt
            written.append(shard.name)
            return write(shard, images)

        patch.setattr(packing, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pack(folder, out, 5, QUIET)
    before = (out / "00000.tar").stat().st_mtime_ns
    pack(folder, out, 5, QUIET)
    assert (out / "00000.tar").stat().st_mtime_ns == before
    assert opened(out, tmp_path / "cache").record == opened(folder, tmp_path / "cache").record
    photograph(50).save(folder / "a/000.jpg")
    with pytest.raises(UserError, match=r"00000.tar: is there already, with other images than a/000.jpg"):
        pack(folder, out, 5, QUIET)


@pytest.mark.parametrize("length", [0, 100, 700])
def test_a_shard_that_lost_its_end_is_named(folder, tmp_path, length):
    """As after a power cut; without it, packing goes on."""
    out = tmp_path / "shards"
    whole = pack(folder, out, 4, QUIET)
    content = (out / "00000.tar").read_bytes()
    (out / "00000.tar").write_bytes(content[:length])
    with pytest.raises(UserError, match=r"00000\.tar: damaged .*Remove it: it is packed again"):
        pack(folder, out, 4, QUIET)
    (out / "00000.tar").unlink()
    assert pack(folder, out, 4, QUIET) == whole
    assert (out / "00000.tar").read_bytes() == content


def test_another_number_of_images_in_a_shard_is_refused(folder, tmp_path):
    """Those behind would be in two shards."""
    pack(folder, tmp_path / "shards", 4, QUIET)
    with pytest.raises(UserError, match=r"00000\.tar: is there already, with more than 3 images.* --size"):
        pack(folder, tmp_path / "shards", 3, QUIET)


def test_a_folder_with_something_else_in_it_is_left_alone(folder, tmp_path):
    """And one without images is said."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("")
    with pytest.raises(UserError, match=r"out: has thesis.txt in it"):
        pack(folder, tmp_path / "out", 5, QUIET)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty: no image found"):
        pack(tmp_path / "empty", tmp_path / "none", 5, QUIET)


def labelled_set(root):
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True)
    for number in range(5):
        photograph(number + 100).save(root / f"images/{number}.png")
        height, width = photograph(number + 100).size[::-1]
        mask = (np.indices((height, width)).sum(axis=0) // 16 % 2).astype(np.uint8)
        Image.fromarray(mask).save(root / f"masks/{number}.png")
    return root


def checked(capsys, *words):
    with pytest.raises(SystemExit) as status:
        app(["check", *map(str, words), "--json"])
    return status.value.code, json.loads(capsys.readouterr().out)


def test_check_says_how_much_of_a_pool_it_looked_at(folder, tmp_path, monkeypatch, capsys):
    """What cannot be read of it, and what also validates."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("oneway.data.check.pool.MOST_LOOKED_AT", 13)
    data = labelled_set(tmp_path / "data")
    shutil.copy(data / "images/0.png", folder / "a/same.png")
    for number in range(1, 5):
        shutil.copy(data / f"images/{number}.png", folder / f"a/same{number}.png")
    break_some(folder, (3,))
    pack(folder, tmp_path / "shards", 5, QUIET)
    monkeypatch.chdir(tmp_path)
    status, found = checked(capsys, data, "--unlabelled", tmp_path / "shards")
    assert status == 0
    assert found["pool"]["images"] == 17
    assert found["pool"]["looked_at"] == 13
    assert "A pool of 17 images" in found["remarks"][-1]
    monkeypatch.setattr("oneway.data.check.pool.MOST_LOOKED_AT", 1000)
    status, found = checked(capsys, data, "--unlabelled", tmp_path / "shards")
    kinds = [finding["kind"] for finding in found["findings"]]
    assert kinds.count("Images of the pool that cannot be read: others take their places") == 1
    assert kinds.count("Validation images that are in the pool") == 1
    break_some(folder, range(12))
    pack(folder, tmp_path / "broken", 5, QUIET)
    status, found = checked(capsys, data, "--unlabelled", tmp_path / "broken")
    assert status == 1


def test_the_verb_packs(folder, tmp_path, capsys):
    """And says how many."""
    with pytest.raises(SystemExit):
        app(["shards", str(folder), "--out", str(tmp_path / "pool"), "--size", "4"])
    assert len(list((tmp_path / "pool").glob("*.tar"))) == 3
    assert "12 images in 3 shards" in capsys.readouterr().out
    assert images_of(str(tmp_path / "pool/00000.tar"), *_local(tmp_path / "pool/00000.tar"))[0].name == "a/000.jpg"


def _local(path):
    from oneway.data.pool.files import LocalFiles

    return LocalFiles(), LocalFiles().status(str(path))
