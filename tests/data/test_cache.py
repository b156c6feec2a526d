"""Facts about decoded images on disk: what comes back, what is noticed, and what is left behind, whatever happens."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console

from oneway.config import Data
from oneway.data import list_files, load
from oneway.data.cache import Cache
from oneway.data.dataset import Samples
from oneway.errors import UserError

CLASSES = ["ground", "road", "car"]
SIZES = [(20, 30), (33, 17), (24, 24)]
LABELLED = ["a.png", "b.jpg", "d.png"]
UNLABELLED = ["c.png", "e.jpg"]
DESCRIPTION = {
    "classes": CLASSES,
    "train": {"images": "train/images", "masks": "train/masks"},
    "val": {"images": "val/images", "masks": "val/masks"},
}


def photograph(path: Path, seed: int) -> None:
    """An image of one of three sizes, different for each seed."""
    height, width = SIZES[seed % 3]
    Image.fromarray(np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8)).save(path)


def paint(path: Path, seed: int) -> None:
    """A palette mask of the same size, with every class in it."""
    labels = np.random.default_rng(seed).integers(3, size=SIZES[seed % 3], dtype=np.uint8)
    mask = Image.fromarray(labels).convert("P")
    mask.putpalette([0, 0, 0, 255, 0, 0, 0, 0, 255])
    mask.save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data set of five training images, three with masks, and two to validate on."""
    folder = tmp_path / "photos"
    for split in ("train", "val"):
        for kind in ("images", "masks"):
            (folder / split / kind).mkdir(parents=True)
    for seed, name in enumerate(sorted(LABELLED + UNLABELLED)):
        photograph(folder / "train/images" / name, seed)
        if name in LABELLED:
            paint((folder / "train/masks" / name).with_suffix(".png"), seed)
    for seed, name in enumerate(("y.png", "z.png"), start=7):
        photograph(folder / "val/images" / name, seed)
        paint(folder / "val/masks" / name, seed)
    (folder / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    return folder


def settings(root: Path, **changes: object) -> Data:
    values = {"name": "folder", "path": root, "cache": root.parent / "cache"}
    return Data.model_validate(values | changes)


def train(root: Path, **changes: object) -> Samples:
    return load(settings(root, **changes)).read("train")


def cache_folder(root: Path, **changes: object) -> Path:
    config = settings(root, **changes)
    return Cache.of(list_files(config), config, Console(quiet=True)).folder


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """A hash and the time of the last change of every file."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def refusal(root: Path, **changes: object) -> str:
    with pytest.raises(UserError) as error:
        train(root, **changes)
    return str(error.value)


def same(one: Samples, other: Samples) -> bool:
    return (
        one.names == other.names
        and one.labelled == other.labelled
        and np.array_equal(one.sizes, other.sizes)
        and np.array_equal(one.pixels[:], other.pixels[:])
        and np.array_equal(one.labels[:], other.labels[:])
    )


def test_pixels_and_labels_are_those_that_pillow_decodes(root):
    """Of images of three sizes, as JPEG and PNG; a palette mask holds its indices."""
    for split in ("train", "val"):
        samples = load(settings(root)).read(split)
        for index, name in enumerate(samples.names):
            with Image.open(root / name) as image:
                assert np.array_equal(samples.image(index), np.asarray(image.convert("RGB")))
            if index < samples.labelled:
                mask = (root / split / "masks" / Path(name).name).with_suffix(".png")
                assert np.array_equal(samples.label_map(index), np.asarray(Image.open(mask)))


def test_unlabelled_images_follow_the_labelled_ones(root):
    """Each kind in order of name, wherever the names would put them together."""
    samples = train(root)
    assert samples.names == tuple(f"train/images/{name}" for name in LABELLED + UNLABELLED)
    assert samples.labelled == len(LABELLED)
    assert len(samples.labels) == samples.sizes[: len(LABELLED)].prod(axis=1).sum()


def test_a_file_is_decoded_once(root):
    """The second time, files that hold nothing any more do no harm, if they claim by size and time to be the same."""
    first = train(root)
    for path in (*root.glob("*/images/*"), *root.glob("*/masks/*")):
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert same(train(root), first)


def test_the_data_folder_stays_as_it_is(root):
    """To the byte and the time of change, through decoding and decoding again."""
    before = contents(root)
    train(root)
    photograph(root / "train/images/f.png", 3)
    before |= contents(root)
    train(root, refresh=True)
    assert contents(root) == before


def test_how_a_folder_is_read_decides_where_it_is_kept(root):
    """Another description, hold-out or resolution, or further images: decoded apart. Where one stands is no matter."""
    more = root.parent / "more"
    more.mkdir()
    photograph(more / "m.png", 5)
    base = cache_folder(root)
    apart = {
        base,
        *(cache_folder(root, **one) for one in ({"seed": 1}, {"holdout": 0.5}, {"resolution": "half"})),
        cache_folder(root, unlabelled=more),
    }
    (root / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION | {"classes": [*CLASSES, "tree"]}))
    apart.add(cache_folder(root))
    (root / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION | {"ignore": [7]}))
    apart.add(cache_folder(root))
    assert len(apart) == 7
    (root / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION) + "# a remark changes nothing\n")
    assert cache_folder(root, refresh=True) == base


def test_labels_are_those_of_the_description_in_force(root):
    """Numbers that change their meaning change labels that were decoded before."""
    before = train(root).labels[:]
    described = DESCRIPTION | {"classes": {2: "ground", 1: "road", 0: "car"}}
    (root / "dataset.yaml").write_text(yaml.safe_dump(described, sort_keys=False))
    assert np.array_equal(train(root).labels[:], 2 - before)
    (root / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    assert np.array_equal(train(root).labels[:], before)


def test_the_same_folder_is_the_same_wherever_one_stands(root, monkeypatch):
    """Given from above, from inside, and in full."""
    monkeypatch.chdir(root.parent)
    first = train(Path("photos"), cache=root.parent / "cache")
    monkeypatch.chdir(root)
    assert same(train(Path(), cache=root.parent / "cache"), first)
    assert same(train(root), first)
    assert len(list((root.parent / "cache").iterdir())) == 1


def remove(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def garble(path: Path) -> None:
    """As long as it was."""
    path.write_bytes(path.read_bytes()[::-1])


def replace(path: Path) -> None:
    (paint if "masks" in path.parts else photograph)(path, 10)  # of another size than any of the same name


CHANGES = {"is gone": remove, "has other content": shorten, "has other content too": garble, "is another": replace}


@pytest.mark.parametrize("file", ["train/images/b.jpg", "train/images/c.png", "train/masks/d.png"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_changed_after_decoding_is_named(root, file, change):
    """Whatever became of it: removed, shortened, garbled or another; the way out is named as well."""
    train(root)
    change(root / file)
    message = refusal(root)
    assert f"{root / file} {'is gone' if change is remove else 'has other content'}" in message
    assert "--data.refresh" in message


def test_refresh_accepts_what_has_changed(root):
    """A vanished image is no longer there, another has its new pixels, and all of it is accepted for good."""
    train(root)
    remove(root / "train/images/c.png")
    photograph(root / "train/images/e.jpg", 10)
    refreshed = train(root, refresh=True)
    assert refreshed.names == tuple(f"train/images/{name}" for name in ("a.png", "b.jpg", "d.png", "e.jpg"))
    with Image.open(root / "train/images/e.jpg") as image:
        assert np.array_equal(refreshed.image(3), np.asarray(image))
    assert same(train(root), refreshed)


def test_refresh_does_not_accept_what_cannot_be_decoded(root):
    """A broken image is refused by name, and the images decoded before stay."""
    before = train(root)
    file = root / "train/images/b.jpg"
    original = file.read_bytes()
    garble(file)
    message = refusal(root, refresh=True)
    assert "train/images/b.jpg: damaged" in message
    assert "oneway check" in message
    file.write_bytes(original)
    assert same(train(root), before)


def test_a_touched_or_copied_file_is_the_same(root):
    """Its content tells."""
    before = train(root)
    for path in root.glob("train/*/*"):
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
        os.utime(path, (1, 1))
    assert same(train(root), before)


def test_a_new_image_is_decoded_with_the_rest(root):
    """Without a question, labelled or not."""
    train(root)
    photograph(root / "train/images/f.png", 11)
    assert train(root).names[-1] == "train/images/f.png"
    photograph(root / "train/images/0.png", 12)
    paint(root / "train/masks/0.png", 12)
    samples = train(root)
    assert (samples.names[0], samples.labelled, len(samples)) == ("train/images/0.png", 4, 7)
    assert np.array_equal(samples.label_map(0), np.asarray(Image.open(root / "train/masks/0.png")))


def test_a_new_mask_makes_its_image_a_labelled_one(root):
    """Also where the order of images stays what it was: `e` is the last, and `c` the first without a mask."""
    train(root)
    paint(root / "train/masks/c.png", 2)
    assert train(root).names[:4] == tuple(f"train/images/{name}" for name in ("a.png", "b.jpg", "c.png", "d.png"))
    paint(root / "train/masks/e.png", 4)
    samples = train(root)
    assert samples.labelled == 5
    assert np.array_equal(samples.label_map(4), np.asarray(Image.open(root / "train/masks/e.png")))


@pytest.mark.parametrize("part", ["train", "val"])
def test_the_vanished_image_is_named_before_those_that_moved(tmp_path, part):
    """Without a validation set, images are held out by lot; with one of them gone, one other may change sides."""
    folder = tmp_path / "photos"
    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    for seed in range(40):
        photograph(folder / "images" / f"{seed:02d}.png", seed)
        paint(folder / "masks" / f"{seed:02d}.png", seed)
    dataset = load(settings(folder))
    dataset.read("train")
    gone = folder / (dataset.read(part).names[-1])
    gone.unlink()
    message = refusal(folder)
    first = message.partition("UTC: ")[2]
    assert first.startswith(f"{gone} is gone")
    assert message.count("does not play the part it did") <= 3  # an image with its mask, and the mask left behind


def test_what_cannot_be_used_is_refused_and_nothing_is_kept(root):
    """The mask, the value and its place."""
    mask = np.zeros((20, 30), np.uint8)
    mask[4, 5] = 9
    Image.fromarray(mask).save(root / "train/masks/a.png")
    message = refusal(root)
    assert "train/masks/a.png: 1 pixels have value 9" in message
    assert [path.name for path in cache_folder(root).iterdir()] == [".train.lock"]


LOST: dict[str, Callable[[Path], object]] = {
    "pixels": lambda folder: (folder / "pixels").unlink(),
    "some pixels": lambda folder: os.truncate(folder / "pixels", 100),
    "labels": lambda folder: (folder / "labels").unlink(),
    "index": lambda folder: (folder / "index.json").unlink(),
    "half of the index": lambda folder: os.truncate(folder / "index.json", 100),
    "index of another version": lambda folder: (folder / "index.json").write_text('{"format": 0}'),
    "everything": shutil.rmtree,
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_what_was_lost_from_the_cache_is_decoded_again(root, lose):
    """Someone tidies up; nobody is bothered."""
    before = train(root)
    kept = before.pixels[:], before.labels[:]
    lose(cache_folder(root) / "train")
    after = train(root)
    assert np.array_equal(after.pixels[:], kept[0])
    assert np.array_equal(after.labels[:], kept[1])


READ = """
import sys
from pathlib import Path
from oneway.config import Data
from oneway.data import load
dataset = load(Data(name="folder", path=Path(sys.argv[1]), cache=Path(sys.argv[2])))
"""
KILL = """
import os, signal
def hook(event, arguments):
    if event == sys.argv[3] and str(arguments[0]).endswith(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
dataset.read("train")
"""
TOGETHER = """
print("ready", flush=True)
sys.stdin.readline()
samples = dataset.read("train")
print(samples.content, len(samples), int(samples.pixels[:].astype(int).sum()))
"""
WITH_SMALL_FILES = """
import resource
from oneway.errors import UserError
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
try:
    dataset.read("train")
except UserError as error:
    print(error)
"""


def python(script: str, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own that reads the data set."""
    command = [sys.executable, "-c", READ + script, str(root), str(root.parent / "cache"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


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
def test_a_killed_process_leaves_nothing_that_is_taken_for_a_cache(root, moment, again):
    """Killed when it decodes for the first time, or again since there is a new image."""
    if again:
        train(root)
        photograph(root / "train/images/f.png", 11)
    killed = python(KILL, root, *MOMENTS[moment])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    samples = train(root)
    assert len(samples) == 5 + again
    for index, name in enumerate(samples.names):
        with Image.open(root / name) as image:
            assert np.array_equal(samples.image(index), np.asarray(image))
    assert {path.name for path in cache_folder(root).iterdir()} == {"train", ".train.lock"}


@pytest.mark.parametrize("again", [False, True], ids=["first time", "again"])
def test_processes_that_decode_at_once_all_succeed(root, again):
    """Three of them, begun at the same moment, read the same; none of them leaves anything behind."""
    if again:
        train(root)
    for seed in range(13, 60):
        photograph(root / "train/images" / f"{seed}.png", seed)
    command = [sys.executable, "-c", READ + TOGETHER, str(root), str(root.parent / "cache")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], answers
    samples = train(root)
    expected = f"{samples.content} {len(samples)} {int(samples.pixels[:].astype(int).sum())}\n"
    assert [out for out, _ in answers] == [expected] * 3
    assert {path.name for path in cache_folder(root).iterdir()} == {"train", ".train.lock"}


def test_a_disk_that_is_too_small_is_refused_before_anything_is_decoded(root):
    """A hundred megapixels to an image, in files of a few kilobytes: more than any disk here has room for."""
    large = root / "train/images/large-0.png"
    Image.new("1", (16_384, 16_384)).save(large)
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


def test_a_disk_that_fills_up_is_said_to_be_and_tidied(root):
    """The system refuses to write more than 4,000 bytes to a file, as a quota does."""
    done = python(WITH_SMALL_FILES, root)
    assert f"{cache_folder(root)}: decoded images cannot be kept there (File too large)" in done.stdout, done.stderr
    assert "--data.cache" in done.stdout
    assert [path.name for path in cache_folder(root).iterdir()] == [".train.lock"]


def test_a_cache_that_cannot_be_one_is_named(root):
    """A file is in its place."""
    (root.parent / "cache").write_text("a file")
    message = refusal(root)
    assert str(root.parent / "cache") in message
    assert "--data.cache" in message


def test_by_default_it_is_in_the_users_cache_folder(root, monkeypatch):
    """Where XDG says, or else in ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent / "xdg"))
    assert cache_folder(root, cache=None).parent == root.parent / "xdg/oneway"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(root.parent / "home"))
    assert cache_folder(root, cache=None).parent == root.parent / "home/.cache/oneway"


def many(folder: Path, images: int, broken: list[str]) -> Path:
    """A set with a mask for every tenth training image and ten to validate on; of the broken files, half is there."""
    for kind in ("images", "masks"):
        for split in ("train", "val"):
            (folder / split / kind).mkdir(parents=True)
    for seed in range(images):
        photograph(folder / f"train/images/{seed:03d}.png", seed)
        if seed % 10 == 0:
            paint(folder / f"train/masks/{seed:03d}.png", seed)
    for seed in range(1000, 1010):
        photograph(folder / f"val/images/{seed}.png", seed)
        paint(folder / f"val/masks/{seed}.png", seed)
    (folder / "dataset.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    for file in broken:
        shorten_to_half(folder / file)
    return folder


def shorten_to_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def said(root: Path, split: str = "train", **changes: object) -> tuple[Samples, str]:
    """Samples, and what a person was told meanwhile."""
    console = Console(width=500, color_system=None)
    with console.capture() as capture:
        samples = load(settings(root, skip_unreadable=True, **changes), console).read(split)
    return samples, capture.get()


BROKEN = ["train/images/007.png", "train/masks/050.png"]


@pytest.fixture(scope="module")
def two_broken(tmp_path_factory) -> Path:
    """An image and a mask of 200 cannot be read."""
    return many(tmp_path_factory.mktemp("many") / "photos", 200, BROKEN)


def test_a_few_files_that_cannot_be_read_are_left_out_and_named(two_broken):
    """All others are there with their own pixels and labels; the same again from the cache."""
    for _ in range(2):
        samples, words = said(two_broken)
        assert len(samples) == 198
        assert samples.labelled == 19
        assert not {"train/images/007.png", "train/images/050.png"} & set(samples.names)
        assert "2 of the 200 training images cannot be read and are left out" in words
        assert all(file in words for file in BROKEN)
        for index in (5, 6, 18, 19, 30, 197):
            with Image.open(two_broken / samples.names[index]) as image:
                assert np.array_equal(samples.image(index), np.asarray(image))
        mask = two_broken / samples.names[18].replace("images", "masks")
        assert np.array_equal(samples.label_map(18), np.asarray(Image.open(mask)))


def test_without_the_flag_they_are_refused_and_the_flag_is_named(two_broken):
    """Whether they have been left out before, which costs no decoding, or not."""
    for cache in ("cache", "another cache", "cache"):
        message = refusal(two_broken, cache=two_broken.parent / cache)
        assert all(f"{file}: " in message for file in BROKEN)
        assert "--data.skip-unreadable" in message
        said(two_broken)


def test_what_is_left_out_is_no_part_of_the_content(two_broken, tmp_path):
    """The same images without those two have the same digest: what trains is what counts."""
    without = many(tmp_path / "photos", 200, [])
    for file in ("train/images/007.png", "train/images/050.png", "train/masks/050.png"):
        (without / file).unlink()
    assert said(two_broken)[0].content == said(without)[0].content


def test_too_many_are_refused_with_count_share_and_files(tmp_path):
    """Two of a hundred are more than one in a hundred; of ten validation images, one is."""
    root = many(tmp_path / "photos", 100, ["train/images/003.png", "train/masks/020.png", "val/images/1004.png"])
    message = refusal(root, skip_unreadable=True)
    assert "2 of the 100 training images (2.0 %) cannot be read" in message
    assert "leaves out 1 % at most" in message
    assert "train/images/003.png: " in message
    assert "train/masks/020.png: " in message
    with pytest.raises(UserError, match=r"1 of the 10 validation images \(10\.0 %\)"):
        said(root, "val")
    assert "--data.skip-unreadable" not in refusal(root)  # which would be no way out


def test_one_in_a_hundred_may_be_left_out(tmp_path):
    """The limit itself is allowed; left out of those that validate, the remark says what scores are of."""
    root = many(tmp_path / "photos", 100, ["train/images/003.png"])
    assert len(said(root)[0]) == 99
    for seed in range(1010, 1100):
        photograph(root / f"val/images/{seed}.png", seed)
        paint(root / f"val/masks/{seed}.png", seed)
    shorten_to_half(root / "val/masks/1044.png")
    samples, words = said(root, "val")
    assert len(samples) == 99
    assert "1 of the 100 validation images cannot be read and is left out" in words
    assert "scores are of the other 99: val/masks/1044.png" in words


def test_labels_that_mean_nothing_are_no_matter_of_reading(tmp_path):
    """A mask with a wrong value, or of another size than its image, is refused with the flag too."""
    root = many(tmp_path / "photos", 200, BROKEN)
    Image.fromarray(np.full(SIZES[0], 9, np.uint8)).save(root / "train/masks/030.png")
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(root / "train/masks/040.png")
    message = refusal(root, skip_unreadable=True)
    assert "2 errors" in message
    assert "train/masks/030.png: 600 pixels have value 9" in message
    assert "train/masks/040.png: 5×5 labels" in message


def test_what_was_left_out_may_be_mended_or_removed_without_a_question(tmp_path):
    """It played no part: the set is decoded again; a file that did play one is named all the same."""
    root = many(tmp_path / "photos", 200, BROKEN)
    said(root)
    photograph(root / "train/images/007.png", 7)
    samples, words = said(root)
    assert len(samples) == 199
    assert "1 of the 200 training images cannot be read and is left out" in words
    for kind in ("images", "masks"):
        (root / f"train/{kind}/050.png").unlink()
    samples, words = said(root)
    assert len(samples) == 199
    assert not words
    shorten_to_half(root / "train/images/123.png")
    with pytest.raises(UserError, match=r"123\.png has other content"):
        said(root)
    assert len(said(root, refresh=True)[0]) == 198
