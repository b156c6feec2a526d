"""An archive as annotation tools export it, and a video, are data: unpacked once, and never to anywhere else."""

from __future__ import annotations

import io
import json
import re
import shutil
import stat
import struct
import zipfile
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from data.folders import SCENE, coco, pairs, photo
from oneway.cli import app
from oneway.common.errors import UserError
from oneway.config import Data
from oneway.data import list_files, load
from oneway.data.cache.unpack import as_folder
from oneway.data.check.pool import refuse_broken

QUIET = Console(quiet=True)


def packed(path, folder, inside=""):
    """A zip file of a folder, perhaps in a folder of its own."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, f"{inside}{file.relative_to(folder)}")
    return path


@pytest.fixture
def settings(tmp_path):
    return Data(name="folder", cache=tmp_path / "cache", holdout=0.25)


@pytest.mark.parametrize("inside", ["", "my export/", "a/b/"])
def test_an_archive_is_read_as_the_folder_that_was_packed(tmp_path, settings, inside):
    """Whether all of it is in one folder or not; and once more without being unpacked again."""
    for index in range(4):
        photo(tmp_path / "export" / "images" / f"{index}.jpg", index)
    coco(tmp_path / "export" / "annotations" / "instances_default.json", [f"{index}.jpg" for index in range(4)])
    (tmp_path / "export" / "__MACOSX").mkdir()
    (tmp_path / "export" / "__MACOSX" / "._0.jpg").write_bytes(b"clutter")
    path = packed(tmp_path / "export.zip", tmp_path / "export", inside)
    plain = list_files(settings.model_copy(update={"path": tmp_path / "export"}))
    zipped = settings.model_copy(update={"path": path})
    listing = list_files(zipped)
    assert listing.classes == plain.classes == ("background", "road", "car")
    assert [item.name for item in listing.train] == [item.name for item in plain.train]
    assert np.array_equal(listing.read_labels(listing.val[0]), SCENE)
    times = {file: file.stat().st_ctime_ns for file in listing.root.rglob("*")}
    assert load(zipped).read("val").names == tuple(item.name for item in plain.val)
    assert {file: file.stat().st_ctime_ns for file in listing.root.rglob("*")} == times


def test_another_content_is_another_folder(tmp_path, settings):
    """By what the archive holds, and not by its name."""
    pairs(tmp_path / "one", 3)
    first = list_files(settings.model_copy(update={"path": packed(tmp_path / "x.zip", tmp_path / "one")}))
    pairs(tmp_path / "one", 5)
    second = list_files(settings.model_copy(update={"path": packed(tmp_path / "x.zip", tmp_path / "one")}))
    assert (len(first.train), len(second.train)) == (2, 4)
    assert len(list_files(settings.model_copy(update={"path": first.root})).train) == 2  # it is still there


def test_check_takes_an_archive(tmp_path, monkeypatch, capsys):
    """It says what is there; nothing is written into the archive, and the command that unpacks it is said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    pairs(tmp_path / "folder", 5)
    for index in range(5):
        photo(tmp_path / "folder" / "images" / f"{index}.jpg", 50 * index)
    packed(tmp_path / "my export.zip", tmp_path / "folder")
    with pytest.raises(SystemExit) as status:
        app(["check", "my export.zip", "--json"])
    assert status.value.code == 0
    assert json.loads(capsys.readouterr().out)["labelled"] == 4
    with pytest.raises(UserError, match=r"Unpack it, and save there: unzip 'my export\.zip' -d 'my export'"):
        app(["check", "my export.zip", "--save"], result_action="return_value", exit_on_error=False)


def entry(name, content=b"x", kind=0):
    info = zipfile.ZipInfo(name)
    info.external_attr = kind << 16
    return info, content


BAD = {
    "'../a.png' in it leads out": [entry("../a.png")],
    "leads out of it": [entry("images/../../a.png")],
    "'/tmp/a.png' in it leads out": [entry("/tmp/a.png")],
    "'C:/a.png' in it leads out": [entry("C:/a.png")],
    "is no ordinary file": [entry("a.png", b"/etc/passwd", stat.S_IFLNK | 0o777)],
    "'a.png' and 'a.png' in it differ": [entry("a.png"), entry("a.png", b"y")],
    "'b/A.png' and 'b//a.PNG' in it differ": [entry("b/A.png"), entry("b//a.PNG", b"y")],
    "no image is in it": [entry("annotations/instances_default.json", b"{}")],
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("words", "entries"), BAD.items())
def test_what_could_do_harm_is_refused_and_nothing_is_unpacked(tmp_path, settings, words, entries):
    """Paths that lead out, links, and archives without images."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for info, content in [*entries, entry("b.json")]:
            archive.writestr(info, content)
    before = sorted(tmp_path.parent.rglob("*.png"))
    with pytest.raises(UserError, match=words):
        as_folder(tmp_path / "x.zip", QUIET, settings)
    assert not (tmp_path / "cache").exists()
    assert sorted(tmp_path.parent.rglob("*.png")) == before


def test_windows_separators_are_folders(tmp_path, settings):
    """Some tools write them."""
    pairs(tmp_path / "folder", 3)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for file in (tmp_path / "folder").rglob("*.*"):
            name = str(file.relative_to(tmp_path / "folder"))
            archive.writestr(name, file.read_bytes())
    content = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(content.replace(b"images/", b"images\\").replace(b"masks/", b"masks\\"))
    assert len(list_files(settings.model_copy(update={"path": tmp_path / "x.zip"})).train) == 2


def test_a_bomb_is_refused_by_what_it_announces_and_by_what_it_is(tmp_path, settings, monkeypatch):
    """A ratio that images never have; and a file that announces less than it holds is cut off there, and damaged."""
    monkeypatch.setattr("oneway.data.cache.archives.FREE_BYTES", 2**16)
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(2**24))
    with pytest.raises(UserError, match=r"would unpack to 1 file of 16,777,216 bytes.*If you trust it, unpack it"):
        as_folder(path, QUIET, settings)
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<I", 2**24), struct.pack("<I", 100)))
    with pytest.raises(UserError, match="damaged archive"):
        as_folder(path, QUIET, settings)
    assert not any(file.is_file() and file.suffix == ".png" for file in (tmp_path / "cache").rglob("*"))


@pytest.mark.parametrize("end", [40, 200])
def test_a_damaged_archive_leaves_nothing_behind(tmp_path, settings, end):
    path = packed(tmp_path / "x.zip", pairs(tmp_path / "folder", 3))
    path.write_bytes(path.read_bytes()[:-end])
    with pytest.raises(UserError, match="a damaged archive"):
        as_folder(path, QUIET, settings)


@pytest.mark.parametrize("harm", ["gone", "shorter", "a folder"])
def test_what_was_unpacked_is_made_whole_again(tmp_path, settings, harm):
    """Some systems clear the cache file by file, by age."""
    zipped = settings.model_copy(update={"path": packed(tmp_path / "x.zip", pairs(tmp_path / "folder", 4))})
    first = list_files(zipped)
    file = first.train[0].image
    content = file.read_bytes()
    file.unlink()
    if harm == "shorter":
        file.write_bytes(content[:-9])
    elif harm == "a folder":
        file.mkdir()
    assert [item.name for item in list_files(zipped).train] == [item.name for item in first.train]
    assert file.read_bytes() == content


@pytest.mark.parametrize("name", ["...zip", "..zip", ".hidden.zip"])
def test_a_name_of_dots_opens_no_other_folder(tmp_path, settings, name):
    """Their stems are the folder above, this folder, and one that is not seen."""
    photo(tmp_path / "cache" / "unpacked" / "another" / "secret.jpg")
    zipped = settings.model_copy(update={"path": packed(tmp_path / name, pairs(tmp_path / "folder", 4))})
    assert len(list_files(zipped).train) == 3


def test_a_whole_cache_need_not_be_writable(tmp_path, settings):
    """It may be shared, or on a medium that only reads."""
    path = packed(tmp_path / "x.zip", pairs(tmp_path / "folder", 4))
    folder = as_folder(path, QUIET, settings)
    lock = next((tmp_path / "cache").rglob(".*.lock"))
    lock.unlink()
    lock.mkdir()  # which nobody can write to, whoever runs this
    assert as_folder(path, QUIET, settings) == folder
    next(folder.rglob("*.jpg")).unlink()
    with pytest.raises(UserError, match=r"cannot be kept there.*--data\.cache; for a command.*XDG_CACHE_HOME"):
        as_folder(path, QUIET, settings)


@pytest.mark.parametrize("names", [("a" * 260 + ".png",), ("a.png", "a.png/b.png"), ("a.png/b.png", "a.png")])
def test_a_name_that_no_disk_can_hold_is_named(tmp_path, settings, names):
    """Another cache would not help."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    with pytest.raises(UserError, match=rf"x\.zip: '{names[-1]}' in it has a name .* yourself: unzip .*x\.zip -d"):
        as_folder(tmp_path / "x.zip", QUIET, settings)


def test_a_disk_that_is_too_small_is_refused_in_a_unit_that_fits(tmp_path, settings, monkeypatch):
    path = packed(tmp_path / "x.zip", pairs(tmp_path / "folder", 4))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.json", bytes(1234567))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4300))
    with pytest.raises(UserError, match=r"needs 1\.2 MB, and 4\.3 kB are free"):
        as_folder(path, QUIET, settings)


@pytest.fixture
def film(tmp_path):
    return write_film(tmp_path / "film.mp4")


def write_film(path):
    """Five seconds, ten frames in each, that grow brighter."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", 10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(50):
            pixels = np.full((48, 64, 3), 4 * index, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize(("every", "count"), [(1.0, 5), (2.0, 3), (0.25, 20)])
def test_frames_of_a_video_are_unlabelled_images(tmp_path, settings, film, every, count):
    """One for each so many seconds, and the right ones, by their brightness."""
    pairs(tmp_path / "data", 4)
    given = settings.model_copy(update={"path": tmp_path / "data", "unlabelled": film, "frames_every": every})
    frames = [item for item in list_files(given).train if item.mask is None]
    assert len(frames) == count
    due = [Fraction(10 * index) * Fraction(every) for index in range(count)]
    for item, frame in zip(frames, due, strict=True):
        number = -(-frame.numerator // frame.denominator)  # the first frame that is not before its time
        assert item.name == f"unlabelled/{number / 10:010.3f}.jpg"
        assert abs(np.asarray(Image.open(item.image)).mean() - 4 * number) < 6
    samples = load(given).read("train")
    assert len(samples) == 3 + count
    assert samples.labelled == 3


def test_a_film_that_breaks_off_is_used_and_named(tmp_path, settings, capsys):
    """Its frames up to there; what is no video is refused."""
    film = write_film(tmp_path / "film.mkv")
    film.write_bytes(film.read_bytes()[: film.stat().st_size * 7 // 10])
    for _ in range(2):  # the second time from the cache
        frames = sorted(path.name for path in as_folder(film, Console(width=400), settings).iterdir())
        assert 0 < len(frames) < 5
        assert frames == [f"{index:06d}.000.jpg" for index in range(len(frames))]
        assert capsys.readouterr().out.count("film.mkv: breaks off") == 1
    film.write_bytes(b"no video at all")
    with pytest.raises(UserError, match=r"film\.mkv: damaged, or no video"):
        as_folder(film, QUIET, settings)


def test_a_folder_of_videos_is_one_of_all_their_frames(tmp_path, settings, film):
    """Beside images, or as a data set, videos are left to be named."""
    films = tmp_path / "films"
    (films / "monday").mkdir(parents=True)
    for name in ("a.mp4", "a.avi", "monday/b.MP4"):
        shutil.copy(film, films / name)
    write_film(films / "a.avi")
    given = settings.model_copy(update={"path": pairs(tmp_path / "data", 4), "unlabelled": films})
    frames = [item.name for item in list_files(given).train if item.mask is None]
    places = [name.removeprefix("unlabelled/").rpartition("/")[0] for name in frames]
    assert Counter(places) == {"a.mp4": 5, "a.avi": 5, "monday/b.MP4": 5}
    assert len(load(given).read("train")) == 3 + 15
    shutil.copy(film, films / "c.mp4")
    assert len(list_files(given).train) == 3 + 20
    with pytest.raises(UserError, match="no image found, but videos"):
        list_files(settings.model_copy(update={"path": films}))
    photo(films / "x.jpg")
    assert len(list_files(given).train) == 3 + 1


@pytest.mark.parametrize("left", [b"", None])
def test_frames_are_made_whole_again(settings, film, left):
    """Where one is gone, or cut short."""
    folder = as_folder(film, QUIET, settings)
    frame = sorted(folder.iterdir())[2]
    content = frame.read_bytes()
    frame.unlink()
    if left is not None:
        frame.write_bytes(left)
    assert as_folder(film, QUIET, settings) == folder
    assert frame.read_bytes() == content


@pytest.mark.parametrize("broken", [1, 5])
def test_frames_that_cannot_be_read_are_said_to_be_of_their_film(tmp_path, settings, film, broken):
    """It is what was named; one frame gets another in its place, and a film without any is refused."""
    pairs(tmp_path / "data", 4)
    given = settings.model_copy(update={"path": tmp_path / "data", "unlabelled": film, "pool": "always"})
    for frame in sorted(as_folder(film, QUIET, settings).iterdir())[:broken]:
        frame.write_bytes(bytes(frame.stat().st_size))
    console = Console(file=io.StringIO(), width=400)
    pool = load(given, console).read("train").pool
    assert pool is not None
    if broken == 5:
        with pytest.raises(UserError, match=rf"^{re.escape(str(film))}: 5 of 5 images of the pool"):
            refuse_broken(pool)
    else:
        assert pool.read(0, 0, lambda size: (0, 0, *size)).image > 0
        assert f"Note: {film}: another image is used" in console.file.getvalue()  # type: ignore[attr-defined]
