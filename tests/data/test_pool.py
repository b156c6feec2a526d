"""A pool is read by random access, from a folder or from shards, and never otherwise than it was indexed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from oneway.common.errors import UserError
from oneway.data.decode.images import read_image
from oneway.data.pool import find_pool, is_pool
from oneway.data.pool import pool as pool_file
from oneway.data.pool.entries import ENTRY, build, load, refuse_repeated
from oneway.data.pool.entries import _seal as seal
from oneway.data.pool.files import LocalFiles, Status
from oneway.data.pool.shard_index import entries_of, images_of, index_shards
from oneway.data.pool.sources import expand_braces
from oneway.data.pool.tar import Member, members
from pools import break_some, opened, pack, photograph, write_images


@pytest.fixture
def folder(tmp_path):
    return write_images(tmp_path / "images")


@pytest.fixture
def shards(folder, tmp_path):
    return pack(folder, tmp_path / "shards")


def whole(size):
    return (0, 0, *size)


def test_a_folder_and_its_shards_are_the_same_pool(folder, shards, tmp_path):
    """The same images in the same order, with the pixels of their files and the same digest."""
    files = sorted(path for path in folder.rglob("*.jpg"))
    pools = [opened(place, tmp_path / "cache") for place in (folder, shards, f"{shards}/{{00000..00002}}.tar")]
    assert len({pool.record for pool in pools}) == 1
    for number, path in enumerate(files):
        for pool in pools:
            part = pool.decode(number)
            assert part.size == part.pixels.shape[:2]
            assert np.array_equal(part.pixels, read_image(path))
            assert pool.name(number).endswith(path.relative_to(folder).as_posix())


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_found_where_tarfile_finds_them(format, tmp_path):
    """In every dialect, with long names, folders, links, other files and empty ones among them."""
    names = ["a.jpg", f"{'d' * 90}/{'e' * 60}.jpg", "ä/ö.png", "empty.txt"]
    names += [] if format == tarfile.USTAR_FORMAT else [f"{'long/' * 60}name.jpg"]
    with tarfile.open(tmp_path / "x.tar", "w", format=format) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = 0 if name == "empty.txt" else 700 * number + 1
            tar.addfile(info, io.BytesIO(bytes(info.size)))
        link = tarfile.TarInfo("link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "a.jpg"
        tar.addfile(link)
    content = (tmp_path / "x.tar").read_bytes()
    found = list(members(lambda start, count: content[start : start + count], len(content), "x"))
    with tarfile.open(tmp_path / "x.tar") as tar:
        expected = [(info.name, info.offset_data, info.size) for info in tar if info.isreg()]
    assert [(member.name, member.offset, member.size) for member in found] == expected


def test_the_index_takes_less_than_64_bytes_an_image(shards, tmp_path):
    """And no name is in it."""
    opened(shards, tmp_path / "cache")
    (entries,) = (tmp_path / "cache/pools").glob("*/entries-*")
    assert entries.stat().st_size == 12 * ENTRY.itemsize <= 12 * 64


def test_an_interrupted_index_is_continued(shards, tmp_path, monkeypatch):
    """Shards that were indexed are not read again, and the result is the same."""
    expected, read, scan = opened(shards, tmp_path / "whole").record, [], images_of

    def interrupted(path, *rest):
        if path.endswith("00002.tar") and len(read) < 3:
            raise KeyboardInterrupt
        read.append(Path(path).name)
        return scan(path, *rest)

    monkeypatch.setattr("oneway.data.pool.shard_index.images_of", interrupted)
    monkeypatch.setattr("oneway.data.pool.shard_index.THREADS", 1)
    with pytest.raises(KeyboardInterrupt):
        opened(shards, tmp_path / "cache")
    assert read == ["00000.tar", "00001.tar"]
    read.append("")
    assert opened(shards, tmp_path / "cache").record == expected
    assert read[3:] == ["00002.tar"]
    opened(shards, tmp_path / "cache")
    assert read[4:] == []


def test_shards_may_join(shards, folder, tmp_path):
    """They alone are indexed, which is said."""
    opened(shards, tmp_path / "cache")
    write_images(tmp_path / "more/x", 5)
    pack(tmp_path / "more", tmp_path / "others")
    shutil.copy(tmp_path / "others/00000.tar", shards / "00003.tar")
    console = Console(record=True, file=io.StringIO(), width=200)
    assert len(opened(shards, tmp_path / "cache", console)) == 17
    assert "1 shard more" in console.export_text()


def change_shard(shards):
    with tarfile.open(shards / "00001.tar", "a") as tar:
        tar.add(__file__, "more.txt")


def cut_shard(shards):
    os.truncate(shards / "00001.tar", 2000)


@pytest.mark.parametrize("change", [change_shard, cut_shard])
def test_a_shard_that_changes_is_refused_before_a_run_and_during_one(change, shards, tmp_path):
    """By name, with its length now and before."""
    pool = opened(shards, tmp_path / "cache")
    before = (shards / "00001.tar").stat().st_size
    change(shards)
    expected = rf"00001.tar: changed since it was indexed: it has \d+ bytes, and had {before}.*--data.refresh"
    with pytest.raises(UserError, match=expected):
        pool.decode(6)
    with pytest.raises(UserError, match=expected):
        opened(shards, tmp_path / "cache")


def test_a_shard_of_the_same_length_with_other_images_is_noticed(shards, tmp_path):
    """What lies before an image must be its header."""
    pool = opened(shards, tmp_path / "cache")
    place = shards / "00001.tar"
    status = place.stat()
    with tarfile.open(place) as tar:
        files = [(info, tar.extractfile(info).read()) for info in tar]
    with tarfile.open(place, "w") as tar:
        for info, content in files:
            info.name = info.name.replace("a/010", "a/099")
            tar.addfile(info, io.BytesIO(content))
    assert place.stat().st_size == status.st_size
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(UserError, match=r"00001.tar: changed since it was indexed"):
        pool.decode(5)


def test_a_shard_that_is_only_written_anew_is_accepted(shards, tmp_path):
    """As a copy is, whose time is another."""
    expected = opened(shards, tmp_path / "cache").record
    os.utime(shards / "00001.tar", (1, 1))
    assert opened(shards, tmp_path / "cache").record == expected


def test_a_new_shard_that_is_cut_short_is_refused(shards, tmp_path):
    """At whatever byte, with the name of the shard."""
    content = (shards / "00001.tar").read_bytes()
    end = len(content.rstrip(b"\0"))
    for length in (0, 100, 512, 700, end // 2, end):
        (shards / "00001.tar").write_bytes(content[:length])
        with pytest.raises(UserError, match=r"00001.tar: (cut short|no tar file)"):
            opened(shards, tmp_path / f"cache-{length}")


def test_a_file_of_a_folder_that_changes_is_refused(folder, tmp_path):
    """And one that is gone."""
    pool = opened(folder, tmp_path / "cache", pool="always")
    photograph(1).save(folder / "a/000.jpg")
    with pytest.raises(UserError, match=r"a/000.jpg: changed since it was indexed.*--data.refresh"):
        pool.decode(0)
    (folder / "a/002.jpg").unlink()
    with pytest.raises(UserError, match=r"a/002.jpg: gone since"):
        pool.decode(1)
    with pytest.raises(UserError, match=r"its 11 images are not the 12"):
        opened(folder, tmp_path / "cache")
    assert len(opened(folder, tmp_path / "cache", refresh=True)) == 11


def test_images_of_the_same_name_and_size_are_used_and_counted(shards, tmp_path):
    """They may be others: shards that were packed without checksums do not say."""
    shutil.copy(shards / "00001.tar", shards / "00009.tar")
    console = Console(record=True, file=io.StringIO(), width=300)
    assert len(opened(shards, tmp_path / "cache", console)) == 17
    said = console.export_text()
    assert re.search(r"5 images may be there twice: \S+00001.tar/\S+ and \S+00009.tar/\S+ have the same name", said)


class Elsewhere(LocalFiles):
    """Where the shards of `index_of` would be."""

    waits = True

    def read(self, path, start, count, expected=None):
        """The header of an image."""
        info = tarfile.TarInfo(f"{start // 1024:06}.jpg")
        info.size = 100
        return info.tobuf()


def index_of(place, checks):
    """An index of two shards of the same names and sizes."""
    images = [Member(f"{number:06}.jpg", 1024 * number, 1024 * number + 512, 100) for number in range(len(checks[0]))]
    found = iter([(Status(10**6, ""), entries_of(images, each)) for each in checks])
    place.mkdir()
    return build(place, ["a.tar", "b.tar"], lambda path: next(found), 1, lambda: None)


def test_checksums_tell_images_of_the_same_name_and_size_apart(tmp_path):
    """Folders that count up from the same number; where one has no checksum, nobody can tell."""
    said = []
    index = index_of(tmp_path / "others", [[1, 2, 3], [4, 5, 6]])
    assert refuse_repeated(index, str, said.append) is index
    assert not said
    refuse_repeated(index_of(tmp_path / "unknown", [[1, 2, 3], [4, 0, 6]]), str, said.append)
    assert said == ["1 image may be there twice: 1 and 4 have the same name and size. All of them are used."]


def test_an_image_that_is_there_twice_is_refused(folder, tmp_path):
    """In two shards, each time anew, without indexing them again; or in one."""
    index = index_of(tmp_path / "index", [[1, 2, 3], [4, 2, 6]])
    for _ in range(2):
        with pytest.raises(UserError, match=r"1 and 4 have the same name, size and checksum"):
            refuse_repeated(index, str, pytest.fail)
        with pytest.raises(UserError, match=r"have the same name, size and checksum"):
            index_shards(("a.tar", "b.tar"), Elsewhere(), tmp_path / "index", False, Console(quiet=True))
    assert len(load(tmp_path / "index")) == 6
    with tarfile.open(tmp_path / "twice.tar", "w") as tar:
        tar.add(folder / "a/000.jpg", "x.jpg")
        tar.add(folder / "a/002.jpg", "x.jpg")
    with pytest.raises(UserError, match=r"twice.tar: has 2 images called x.jpg"):
        opened(tmp_path / "twice.tar", tmp_path / "cache")


def test_what_is_no_pool_is_said(folder, shards, tmp_path):
    """Empty ones, compressed ones, files of other kinds and those that are not there."""
    with tarfile.open(tmp_path / "empty.tar", "w") as tar:
        tar.add(__file__, "a.heic")
    (tmp_path / "none").mkdir()
    for named, message in {
        tmp_path / "empty.tar": r"empty.tar: no image found in it.*no decoder",
        tmp_path / "none": r"none: no image found in it",
        tmp_path / "x.tar.gz": r"x.tar.gz: is compressed",
        shards / "{00000..00009}.tar": r"00003.tar: no such file",
        shards / "x*.tar": r"no shard has such a name",
        "gopher://x/y.tar": r"gopher:// cannot be read",
        "http://x/*.tar": r"does not list its files",
    }.items():
        with pytest.raises(UserError, match=message):
            opened(named, tmp_path / "cache", pool="always")


def test_which_names_are_pools(folder, shards):
    """Shards always, a folder where it is asked for or is large."""
    for named in (shards, shards / "00000.tar", shards / "*.tar", shards / "{0..3}.tar", "http://x/y", "s3://x/y.tar"):
        assert is_pool(named, "never")
    assert [is_pool(folder, setting) for setting in ("auto", "always", "never")] == [False, True, False]
    assert expand_braces("{a,b}/{08..10}.tar") == [f"{one}/{two}.tar" for one in "ab" for two in ("08", "09", "10")]
    assert find_pool(shards).shards == tuple(str(shards / f"0000{number}.tar") for number in range(3))


def test_large_folders_are_pools_by_themselves(folder, monkeypatch):
    """By what they would take decoded."""
    monkeypatch.setattr("oneway.data.pool.sources.MOST_DECODED", 1000)
    assert [is_pool(folder, setting) for setting in ("auto", "always", "never")] == [True, True, False]


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_part_of_an_image_is_that_of_the_whole(suffix, tmp_path):
    """At full and at half size, turned or not."""
    from PIL import Image

    from oneway.data.decode.images import read_part

    picture = photograph(1)
    exif = Image.Exif()
    for orientation in (1, 6):
        exif[0x0112] = orientation
        picture.save(tmp_path / f"x.{suffix}", exif=exif)
        content = (tmp_path / f"x.{suffix}").read_bytes()
        image = read_image(tmp_path / f"x.{suffix}")
        for factor in (1, 2):
            expected = image if factor == 1 else np.asarray(Image.fromarray(image).reduce(2))
            smaller = {1: lambda size: 1, 2: lambda size: 2}[factor]
            size, box, pixels = read_part(tmp_path / "x", content, lambda size: (3, 2, size[0] - 1, 20), smaller)
            assert size == expected.shape[:2]
            assert np.array_equal(pixels, expected[3 : box[2], 2:20])


def test_another_image_takes_the_place_of_a_broken_one(folder, tmp_path):
    """The same one for a folder and its shards, whatever was read before; it is named and counted."""
    break_some(folder, (0, 3, 7))
    pools = [opened(place, tmp_path / "cache") for place in (folder, pack(folder, tmp_path / "shards"))]
    broken = [number for number in range(12) if pools[0].name(number)[-7:-4] in ("000", "003", "007")]
    taken = [
        [pool.read(number, 5, whole).image for number in order]
        for pool, order in zip(pools, (range(12), reversed(range(12))), strict=True)
    ]
    assert taken[0] == taken[1][::-1]
    for number, image in enumerate(taken[0]):
        assert (image == number) == (number not in broken)
        assert image not in broken
    assert sorted(pools[0].broken) == sorted(pools[1].broken) == broken
    assert {pools[0].read(broken[0], seed, whole).image for seed in range(20)} != {taken[0][broken[0]]}


def test_broken_images_are_named_a_few_times_and_end_the_run_where_they_are_many(folder, tmp_path, monkeypatch):
    """Beyond the share that a setting allows."""
    monkeypatch.setattr(pool_file, "FEW", 6)
    write_images(folder, 40)
    break_some(folder, range(0, 16))
    console = Console(record=True, file=io.StringIO(), width=300)
    pool = opened(folder, tmp_path / "cache", console)
    with pytest.raises(UserError, match=r"7 of the \d+ images that were read of the pool cannot be decoded.*0.+jpg"):
        [pool.read(number, 0, whole) for number in range(40)]
    said = console.export_text()
    assert said.count("in place of one that cannot be read") == pool_file.NAMED
    assert "further ones are counted" in said


def test_a_damaged_index_is_made_again(shards, tmp_path):
    """Whichever of its files is cut or has other bytes."""
    expected = opened(shards, tmp_path / "cache").record
    place = next((tmp_path / "cache/pools").iterdir())
    for name in ("index.json", next(place.glob("entries-*")).name):
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[: len(content) // 2])
        assert opened(shards, tmp_path / "cache").record == expected
    about = json.loads((place / "index.json").read_bytes().rpartition(b"\n")[0])
    (place / "index.json").write_text(json.dumps(about | {"digest": "0" * 32}))
    assert opened(shards, tmp_path / "cache").record == expected


def test_what_is_in_the_data_set_already_is_left_out_of_a_folder(folder, tmp_path):
    """Else it would train twice, or validate what it has trained on."""
    from oneway.config import Data
    from oneway.data.pool import open_pool

    known = [folder / "a/000.jpg", folder / "b/003.jpg", tmp_path / "elsewhere.jpg"]
    config = Data(name="folder", cache=tmp_path / "cache")
    pool = open_pool(find_pool(folder), config, Console(quiet=True), known)
    assert len(pool) == 10
    assert not {pool.name(number) for number in range(10)} & set(map(str, known))


def test_files_of_this_machine_are_read_by_position(tmp_path):
    """Beyond the end there is nothing."""
    (tmp_path / "x").write_bytes(b"0123456789")
    files = LocalFiles()
    assert files.read(str(tmp_path / "x"), 3, 4) == b"3456"
    assert files.read(str(tmp_path / "x"), 8, 4) == b"89"
    with pytest.raises(UserError, match="y: cannot be read"):
        files.read(str(tmp_path / "y"), 0, 1)


def test_hostile_shards_and_indexes_are_refused(folder, tmp_path):
    """Sizes that lie, names that lead out and numbers that are none: nothing is written, and only our own error."""
    shards = pack(folder, tmp_path / "shards")
    content = (shards / "00000.tar").read_bytes()
    header = bytearray(content[:512])
    for size in (b"\xff" * 12, b"\x80" + b"\x7f" * 11, b"77777777777\0", b"zzzzzzzzzzz\0"):
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        (shards / "00000.tar").write_bytes(bytes(header) + content[512:])
        with pytest.raises(UserError, match=r"00000.tar: (cut short|no tar file)"):
            opened(shards, tmp_path / "cache")
    with tarfile.open(shards / "00000.tar", "w") as tar:
        tar.add(folder / "a/000.jpg", "../../escaped.jpg")
    pool = opened(shards, tmp_path / "cache")
    assert not [number for number in range(len(pool)) if "escaped" in pool.name(number)]
    place = pool.index.folder
    about = json.loads((place / "index.json").read_bytes().rpartition(b"\n")[0])
    for images in (-1, 1.5, "9", None):
        about["shards"][0][2] = images
        text = json.dumps(about).encode()
        (place / "index.json").write_bytes(text + b"\n" + seal(text))
        assert load(place) is None
    about["entries"] = "../../x"
    text = json.dumps(about).encode()
    (place / "index.json").write_bytes(text + b"\n" + seal(text))
    assert load(place) is None
