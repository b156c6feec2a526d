"""Facts about what `predict` takes for an image, and what it calls the results."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from oneway.cli.command import main
from oneway.common.errors import UserError
from oneway.tools.predict.sources import Skipped, find_sources
from oneway.tools.shards import pack
from small_runs import QUIET

SMALL = Image.new("RGB", (8, 6))


@pytest.fixture
def photos(tmp_path) -> Path:
    """Two images of one stem in subfolders, and one above."""
    for name in ("a/x.png", "b/x.png", "y.bmp"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        SMALL.save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def test_names_are_as_short_as_they_can_be(photos, tmp_path):
    """Suffixes, folders and whole paths only where names would clash; a file named twice is predicted once."""
    SMALL.save(photos / "a/x.jpg")

    def names(*paths: object) -> dict[str, str]:
        sources = find_sources([str(path) for path in paths], tmp_path / "out")
        return {source.path.relative_to(photos.resolve()).as_posix(): source.name for source in sources}

    assert names(photos / "b/x.png", photos / "b") == {"b/x.png": "x"}
    assert names(photos / "a") == {"a/x.jpg": "x.jpg", "a/x.png": "x.png"}
    assert names(photos / "b", photos / "a/x.png") == {"b/x.png": "b/x.png", "a/x.png": "a/x.png"}
    assert names(photos / "**/*.png") == {"a/x.png": "a/x", "b/x.png": "b/x"}
    assert names(photos / "?" / "x.p*") == {"a/x.png": "a/x", "b/x.png": "b/x"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["images/x.jpg", "images/y.jpg", "masks/x.png"], ["images/x", "images/y"]),
        (["x.png", "x_mask.png", "y.png"], ["x", "y"]),
        (["x.jpg", "x.png"], ["x.jpg", "x.png"]),
        (["x.jpg", "x.png", "dataset.yaml"], ["x"]),
    ],
)
def test_masks_of_a_data_set_are_no_photos(tmp_path, files, expected):
    """Where its layout, names or dataset.yaml tell; a.png beside a.jpg alone may be another photo."""
    for name in files:
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        if name == "dataset.yaml":
            (tmp_path / "set" / name).write_text("classes: [a, b]\n")
        else:
            SMALL.save(tmp_path / "set" / name)
    assert [source.name for source in find_sources([str(tmp_path / "set")], tmp_path / "out")] == expected


def test_masks_of_data_sets_are_no_images(tmp_path):
    """Those with and without an image, of classes and of objects, and in folders that a description names."""
    for name in (
        "voc/JPEGImages/a.jpg",
        "voc/SegmentationClass/a.png",
        "voc/SegmentationClass/lone.png",
        "voc/SegmentationObject/a.png",
        "named/photos/b.jpg",
        "named/truth/b.png",
        "named/truth/lone.png",
        "plain/labels/c.png",  # a name alone makes no masks
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        SMALL.save(tmp_path / name)
    (tmp_path / "named" / "dataset.yaml").write_text("train: {images: photos, masks: truth}")

    def found(*folders: str) -> tuple[set[str], Skipped]:
        skipped = Skipped()
        sources = find_sources([str(tmp_path / folder) for folder in folders], tmp_path / "out", skipped)
        return {source.path.relative_to(tmp_path).as_posix() for source in sources}, skipped

    images, skipped = found("voc", "named", "plain")
    assert images == {"voc/JPEGImages/a.jpg", "named/photos/b.jpg", "plain/labels/c.png"}
    assert "5 files are masks of a data set, and left out" in next(skipped.messages())
    assert found("voc/SegmentationObject")[0] == {"voc/SegmentationObject/a.png"}  # as was asked for
    (tmp_path / "named" / "dataset.yaml").unlink()
    images, _ = found(".")  # one folder too high
    assert images == {"voc/JPEGImages/a.jpg", "named/photos/b.jpg", "named/truth/b.png", "named/truth/lone.png"} | {
        "plain/labels/c.png"
    }


def test_a_link_lends_its_name_only_where_its_file_is_not_given(photos, tmp_path):
    """Whichever comes first; of two links to a file elsewhere, the first does."""
    SMALL.save(tmp_path / "elsewhere.png")
    for name, target in (("a/link.png", "x.png"), ("link.bmp", "y.bmp"), ("p.png", "../elsewhere.png")):
        (photos / name).symlink_to(target)
    (photos / "q.png").symlink_to("p.png")

    def names(*paths: Path) -> set[str]:
        return {source.name for source in find_sources([str(path) for path in paths], tmp_path / "out")}

    assert names(photos) == {"a/x", "b/x", "y", "p"}
    assert names(photos / "link.bmp") == {"link"}
    assert names(photos / "link.bmp", photos / "y.bmp") == {"y"}
    deep = photos.joinpath(*"abcdefghijklmnopqrst")  # farther below than what it leads to
    deep.mkdir(parents=True)
    (deep / "z.png").symlink_to(tmp_path / "elsewhere.png")
    for name in ("p.png", "q.png"):
        (photos / name).unlink()
    assert names(photos) == names(photos / "**/*.*") == {"a/x", "b/x", "y", "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/z"}
    assert names(deep, photos / "a/x.png", photos / "b/x.png") == {"z", "a/x.png", "b/x.png"}


def test_a_link_has_a_suffix_of_its_own(tmp_path):
    """As in stores of Hugging Face and DVC, whose files have none: annotations name the link, and a video is one."""
    (tmp_path / "store").mkdir()
    (tmp_path / "links").mkdir()
    for name, content in (("a.png", "0123"), ("a.png.jpg", "89ab"), ("b.MP4", "cdef")):
        SMALL.save(tmp_path / "store" / content, "PNG")
        (tmp_path / "links" / name).symlink_to(tmp_path / "store" / content)
    first, longer, video = find_sources([str(tmp_path / "links" / "*")], tmp_path / "out")
    assert (first.file_name, longer.file_name, video.file_name) == ("a.png", "a.png.jpg", "b.MP4")
    assert (first.is_video, video.is_video) == (False, True)


def test_links_to_folders_are_counted_until_the_folders_are_named(photos, tmp_path):
    """Another camera's disk, say: nobody would miss its images otherwise."""
    (photos / "camera").symlink_to(tmp_path / "disk")
    (photos / "gone.png").symlink_to("nowhere.png")
    (tmp_path / "disk").mkdir()
    SMALL.save(tmp_path / "disk" / "z.png")

    def found(*paths: Path) -> tuple[set[str], list[str]]:
        skipped = Skipped()
        sources = find_sources([str(path) for path in paths], tmp_path / "out", skipped)
        return {source.path.name for source in sources}, [*skipped.messages()]

    names, (told,) = found(photos)
    assert names == {"x.png", "y.bmp"}
    assert f"2 links to folders or to nothing ({photos / 'camera'} is the first). Name the folders too" in told
    (photos / "gone.png").unlink()
    assert found(photos, photos / "camera") == ({"x.png", "y.bmp", "z.png"}, [])
    (photos / "latest").symlink_to("a")  # whose images are found in it
    (photos / "b" / "above").symlink_to(photos)
    assert found(photos, photos / "camera") == ({"x.png", "y.bmp", "z.png"}, [])
    (photos / "this").symlink_to("that")
    (photos / "that").symlink_to("this")
    names, (told,) = found(photos, photos / "camera")
    assert names == {"x.png", "y.bmp", "z.png"}
    assert f"2 links to folders or to nothing ({photos / 'that'} is the first)" in told
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "camera").symlink_to(tmp_path / "disk")
    with pytest.raises(UserError, match=r"no image or video in this folder\. Not followed, and left out: 1 link"):
        found(tmp_path / "links")


def test_patterns_do_not_follow_links_in_circles(photos, tmp_path):
    """A file is found once, by the way that has no link; behind a link that leads elsewhere, too."""
    for place in (photos, photos / "a", photos / "b"):
        for name in "012":
            (place / name).symlink_to(photos)
    (tmp_path / "disk" / "deep").mkdir(parents=True)
    SMALL.save(tmp_path / "disk" / "deep" / "z.png")
    (photos / "a" / "camera").symlink_to(tmp_path / "disk")
    (photos / ".hidden").mkdir()
    SMALL.save(photos / ".hidden" / "z.png")

    def names(pattern: str) -> set[str]:
        return {source.name for source in find_sources([str(photos / pattern)], tmp_path / "out")}

    assert names("**") == names("**/*") == {"a/x", "b/x", "y", "a/camera/deep/z"}
    assert names("**/*.p[mn]g") == {"a/x", "b/x", "a/camera/deep/z"}
    assert names("[ab]/*.png") == {"a/x", "b/x"}
    assert names("?/camera/**/?.png") == {"a/camera/deep/z"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_files_are_looked_for_is_answered(trained_run, photos, monkeypatch, capfd, number):
    """By a word, and with the shell's status for that signal."""
    monkeypatch.setattr("oneway.tools.predict.command.find_sources", lambda *_: os.kill(os.getpid(), number))
    monkeypatch.setattr(sys, "argv", ["oneway", "predict", str(trained_run), str(photos)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capfd.readouterr().err) == (128 + number, "oneway: Stopped.\n")


def test_folders_that_cannot_be_listed_are_counted(photos, tmp_path, monkeypatch):
    """Another user's, say; hidden ones are nobody's loss."""
    usual = os.scandir

    def refuse(folder):
        if Path(folder).name in ("a", ".trash"):
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return usual(folder)

    (photos / ".trash").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    skipped = Skipped()
    assert {source.name for source in find_sources([str(photos)], tmp_path / "out", skipped)} == {"b/x", "y"}
    told = f"Left out: 1 folder that cannot be listed ({photos / 'a'} is the first: Permission denied)."
    assert [*skipped.messages()] == [told]
    with pytest.raises(UserError, match=f"no image or video in this folder. {re.escape(told)}"):
        find_sources([str(photos / "a")], tmp_path / "out")


def test_shards_are_not_predicted(photos, tmp_path):
    """Named, in a folder or by a pattern: the command that is given unpacks them, and their images are found."""
    pool = tmp_path / "a pool"
    pack(photos, pool, 2, QUIET)
    shards = sorted(pool.glob("*.tar"))
    for named, what in (
        (shards[0], "predicted"),
        (pool, "no image or video in this folder"),
        (pool / "*.tar", "match"),
    ):
        with pytest.raises(UserError, match=what) as refused:
            find_sources([str(named)], tmp_path / "out")
        message = str(refused.value)
        assert str(shards[0]) in message
        place = tmp_path / f"unpacked-{what.split()[0]}"
        place.mkdir()
        subprocess.run(["bash", "-c", message.partition("give the folder: ")[2]], cwd=place, check=True)
        expected = 2 if named == shards[0] else len([*photos.rglob("*.*")])
        assert len(find_sources([str(place / "photos")], tmp_path / "out")) == expected
    shutil.copy(shards[0], photos)
    skipped = Skipped()
    assert find_sources([str(photos)], tmp_path / "out", skipped)
    assert "Not read, and left out: 1 shard or archive (" in next(skipped.messages())
    (photos / "scan.nii.gz").write_bytes(b"a volume, and no archive")
    skipped = Skipped()
    find_sources([str(photos)], tmp_path / "out", skipped)
    assert "1 of kind .nii.gz. Convert" in next(skipped.messages())
