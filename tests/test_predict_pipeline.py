"""Facts about a folder of images on its way to masks and overlays: nothing is lost, mixed up or changed."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.interrupt import Interrupted, stops_as_by_ctrl_c
from oneway.data.decode.images import image_size, read_image
from oneway.data.streets import CLASSES, COLOURS, render
from oneway.models.favoured import favoured
from oneway.models.mirrored import Mirrored
from oneway.runs import atomic
from oneway.tools.predict import Outputs, Predictor, batches, predict_files
from oneway.tools.predict.command import pace
from oneway.tools.predict.sources import Source
from small_runs import QUIET

SIZES = ((64, 128), (48, 40), (33, 71), (130, 75))


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Forty JPEGs, every one different, of four sizes in turn; and a large one among them."""
    folder = tmp_path_factory.mktemp("photos")
    for index in range(40):
        Image.fromarray(render(0, index, *SIZES[index % 4])[0]).save(folder / f"{index:02}.jpg")
    rows = np.concatenate([render(0, index, 64, 128)[0] for index in range(17)])
    Image.fromarray(np.tile(rows, (1, 8, 1))).save(folder / "17 large.jpg")
    return folder


def plainly(model: Predictor, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Classes and overlay by PyTorch's and Pillow's own functions, one image at a time, all of it at full size."""
    x = torch.tensor(pixels)[None].permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        logits = F.interpolate(model.network(x), pixels.shape[:2], mode="bilinear", align_corners=False)
    classes = logits.argmax(dim=1)[0].numpy()
    painted = Image.blend(Image.fromarray(pixels), Image.fromarray(np.array(COLOURS, np.uint8)[classes]), 0.5)
    return classes, np.asarray(painted)


def test_masks_and_overlays_are_those_of_a_plain_loop(model, photos, tmp_path):
    """To the pixel; an overlay is a JPEG, and is what Pillow makes of the same pixels."""
    assert predict_files(model, [str(photos)], Outputs(tmp_path / "out"), QUIET) == 0
    for path in photos.iterdir():
        classes, painted = plainly(model, np.asarray(Image.open(path)))
        assert np.array_equal(np.asarray(Image.open(tmp_path / "out/masks" / f"{path.stem}.png")), classes), path.name
        Image.fromarray(painted).save(tmp_path / "expected.jpg", quality=92, subsampling=0)
        assert (tmp_path / "expected.jpg").read_bytes() == (tmp_path / "out/overlays" / path.name).read_bytes()


def test_results_are_listed_in_the_order_in_which_batches_are_full(model, photos, tmp_path, capfd):
    """Each with the facts of its own image; of images of one size, in the order of their names."""
    assert predict_files(model, [str(photos)], Outputs(tmp_path / "out"), QUIET, as_json=True) == 0
    results = json.loads(capfd.readouterr().out)["results"]
    assert sorted(result["image"] for result in results) == sorted(str(path) for path in photos.iterdir())
    for size in SIZES:
        names = [result["image"] for result in results if (result["height"], result["width"]) == size]
        assert names == sorted(names)
    for result in results:
        mask = np.asarray(Image.open(result["mask"]))
        assert mask.shape == (result["height"], result["width"])
        shares = np.bincount(mask.ravel(), minlength=len(CLASSES)) / mask.size
        assert list(result["shares"].values()) == pytest.approx(shares.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_cleanly(trained_run, photos, tmp_path, number):
    """By Ctrl-C or SIGTERM, while images are in all stages: the shell's status, and no file that is not whole."""
    for copy in range(8):
        shutil.copytree(photos, tmp_path / "photos" / str(copy))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "oneway", "predict", trained_run, tmp_path / "photos", "--out", out]
    process = subprocess.Popen([*map(str, command), "--device", "cpu"], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("masks/*/*.png")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Stopped after" in said
    assert "Traceback" not in said
    masks = list(out.rglob("masks/*/*.png"))
    assert 0 < len(masks) < 41 * 8
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]
    for mask in masks:
        Image.open(mask).load()


def test_what_waits_is_bounded_by_its_pixels(photos, monkeypatch):
    """No more images are decoded, and not yet taken, than fit; a larger one is alone."""
    monkeypatch.setattr(batches, "AHEAD_PIXELS", 3 * 64 * 128)
    begun: list[Path] = []
    monkeypatch.setattr(batches, "read_image", lambda path, *how: (begun.append(path), read_image(path, *how))[1])
    sources = [Source(path, path.stem, path.name) for path in sorted(photos.iterdir())]
    with ThreadPoolExecutor(8) as pool:
        for taken, (source, pixels) in enumerate(batches.decode_ahead(sources, pool, pytest.fail), start=1):
            assert source == sources[taken - 1]
            waiting = [image_size(path) for path in begun if path not in {one.path for one in sources[:taken]}]
            area = sum(height * width for height, width in waiting)
            assert area <= 3 * 64 * 128 or len(waiting) == 1
            assert pixels.shape[:2] == image_size(source.path)
    assert len(begun) == len(sources)


def test_items_made_ahead_come_in_order_and_fail_in_their_turn():
    """And where nobody wants the rest of an endless row, its thread ends."""

    def numbers() -> Iterator[int]:
        yield from range(30)
        raise ValueError("broken off")

    found = []
    with pytest.raises(ValueError, match="broken off"):  # noqa: PT012 (the loop before it is the point)
        for number in batches.prefetch(numbers()):
            found.append(number)
    assert found == list(range(30))
    before = threading.active_count()
    endless = batches.prefetch(itertools.count())
    assert [next(endless) for _ in range(5)] == [0, 1, 2, 3, 4]
    endless.close()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("images", "frames", "expected"),
    [
        (3, 0, "3 images in 2.0 s (1.5 images/s)"),
        (1, 0, "1 image in 2.0 s (2.0 s per image)"),
        (0, 50, "50 frames in 2.0 s (25.0 frames/s)"),
        (1, 3, "1 image and 3 frames in 2.0 s (2.0 pictures/s)"),
        (0, 0, "0 images in 2.0 s"),
    ],
)
def test_the_pace_is_never_nothing(images, frames, expected):
    """A second or more for an image is said so; frames are no images."""
    assert pace(images, frames, 2.0) == expected


def test_json_has_the_order_of_the_inputs(model, tmp_path, capfd):
    """Whichever size came first to be predicted."""
    sizes = [(64, 128), (32, 64), (64, 128), (96, 96), (32, 64)]
    paths = [tmp_path / f"{4 - index}.png" for index in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        Image.fromarray(render(0, 0, *size)[0]).save(path)
    predict_files(model, [str(path) for path in paths], Outputs(tmp_path / "out"), QUIET, as_json=True)
    found = json.loads(capfd.readouterr().out)["results"]
    assert [result["image"] for result in found] == [str(path) for path in paths]


def test_a_killed_process_leaves_masks_whose_meaning_is_known(model, tmp_path, monkeypatch):
    """Before the first of them is written, the index has the classes, and what stands for each."""
    Image.fromarray(render(0, 0, 32, 64)[0]).save(tmp_path / "photo.png")
    found: list[dict[str, object]] = []
    usual = Predictor.predict_batch

    def looking(self, images, *how):
        found.append(json.loads((tmp_path / "out/predictions.json").read_text()))
        return usual(self, images, *how)

    monkeypatch.setattr(Predictor, "predict_batch", looking)
    predict_files(model, [str(tmp_path)], Outputs(tmp_path / "out"), QUIET)
    done = json.loads((tmp_path / "out/predictions.json").read_text())
    (before,) = found
    assert before == {key: done[key] for key in before if key != "stopped"} | {"stopped": True}
    assert before["masks"]["values"].keys() == {*CLASSES}
    assert "stopped" not in done


def written(folder: Path) -> dict[str, int]:
    """When each file but the index was written."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "predictions.json")
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in files}


def test_a_job_is_resumed_with_what_has_no_results(model, tmp_path):
    """Images that are new, newer than their results, or lack one of them; others are left as they are."""
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    for name in ("a", "b", "c", "d"):
        Image.fromarray(render(0, ord(name), 32, 64)[0]).save(photos / f"{name}.png")
    predict_files(model, [str(photos)], Outputs(out, facts=True), QUIET)
    for path in out.rglob("*"):
        os.utime(path, (path.stat().st_mtime + 100,) * 2)  # as if it had been later
    (out / "overlays/b.jpg").unlink()
    (out / "json/c.json").unlink()
    os.utime(photos / "d.png", (time.time() + 200,) * 2)
    Image.fromarray(render(0, 5, 32, 64)[0]).save(photos / "e.png")
    before, said = written(out), io.StringIO()
    predict_files(model, [str(photos)], Outputs(out, facts=True), Console(file=said), resume=True)
    changed = {name for name, at in written(out).items() if before.get(name) != at}
    assert changed == {f"{kind}.{suffix}" for stem in "bcde" for kind, suffix in ((f"masks/{stem}", "png"),
        (f"overlays/{stem}", "jpg"), (f"json/{stem}", "json"))}  # fmt: skip
    assert "Left out: 1 of 5 files, which have results." in said.getvalue()


def test_results_of_a_model_that_was_trained_anew_are_not_kept(model, tmp_path):
    """Nor are they mixed with those of another model, or of other settings."""
    photo, weights, out = tmp_path / "photo.png", tmp_path / "model.safetensors", tmp_path / "out"
    Image.fromarray(render(0, 0, 32, 64)[0]).save(photo)
    weights.touch()
    mine = replace(model, source=weights)

    def resumed(by: Predictor) -> bool:
        before = written(out)
        predict_files(by, [str(photo)], Outputs(out), QUIET, resume=True)
        return written(out) != before

    assert [resumed(mine), resumed(mine)] == [True, False]
    os.utime(weights, (time.time() + 100,) * 2)
    assert resumed(mine)
    for other, what in (
        (replace(model, source=tmp_path), "model"),
        (replace(mine, half=True), "precision"),
        (replace(mine, network=Mirrored(mine.network)), "mirror"),
        (replace(mine, favour={"car": 2.0}), "favour"),
    ):
        with pytest.raises(UserError, match=f"with --resume: its results differ in {what} "):
            resumed(other)
    for outputs, tile, what in (
        (Outputs(out, confidence=True), None, "confidence"),
        (Outputs(out, facts=True), None, "facts"),
        (Outputs(out, indices=True), (64, 64), "tile"),
    ):
        with pytest.raises(UserError, match=f"with --resume: its results differ in {what} "):
            predict_files(mine, [str(photo)], outputs, QUIET, tile=tile, resume=True)


@pytest.fixture
def resumed(model, tmp_path):
    """A model of its own, a folder of two photos with their results, and what of these a resumed job replaces."""
    photos, weights, out = tmp_path / "photos", tmp_path / "model.safetensors", tmp_path / "out"
    photos.mkdir()
    weights.write_text("weights")
    for name in ("a", "b"):
        Image.fromarray(render(0, ord(name), 32, 64)[0]).save(photos / f"{name}.png")
    mine = replace(model, source=weights)
    predict_files(mine, [str(photos)], Outputs(out), QUIET)

    def again(folder: Path = photos) -> set[str]:
        before = written(out)
        predict_files(mine, [str(folder)], Outputs(out), QUIET, resume=True)
        return {Path(name).stem for name, at in written(out).items() if before.get(name) != at}

    return photos, mine, out, again


def test_a_photo_that_was_replaced_is_predicted_again(resumed):
    """Also by an older one, as from an archive, and by one of the same name in another folder."""
    photos, _, _, again = resumed
    assert again() == set()
    Image.fromarray(render(0, 9, 32, 64)[0]).save(photos / "b.png")
    os.utime(photos / "b.png", (1e9, 1e9))
    assert again() == {"b"}
    shutil.copytree(photos, photos.parent / "others")
    assert again(photos.parent / "others") == {"a", "b"}
    assert again(photos.parent / "others") == set()


def test_a_model_that_was_replaced_by_an_older_one_predicts_all_again(resumed):
    _, mine, _, again = resumed
    mine.source.write_text("others")
    os.utime(mine.source, (1e9, 1e9))
    assert again() == {"a", "b"}


def test_a_mask_that_was_edited_is_never_replaced(resumed):
    """It is somebody's work. A newer photo, or a call without --resume, would need a new mask, and is refused."""
    photos, mine, out, again = resumed
    Image.open(out / "masks/a.png").save(out / "masks/a.png")
    edited = (out / "masks/a.png").read_bytes()
    assert again() == set()
    with pytest.raises(UserError, match=r"a\.png: edited since"):
        predict_files(mine, [str(photos)], Outputs(out), QUIET)
    later = time.time() + 100
    os.utime(photos / "a.png", (later, later))
    with pytest.raises(UserError, match=r"a\.png: edited since"):
        again()
    assert (out / "masks/a.png").read_bytes() == edited


@pytest.mark.parametrize("finished", ["overlays", "masks"])
def test_what_a_stopped_job_did_not_reach_is_predicted_with_its_settings(resumed, monkeypatch, finished):
    """Though there are earlier results, made with others; wherever it was killed, as between two files of an image."""
    photos, mine, out, _ = resumed
    factors = {"car": 1e9}
    doubtful = replace(mine, network=favoured(mine.network, mine.classes, factors, mine.device), favour=factors)
    usual = atomic.replace_file

    def killed(path, content):
        usual(path, content)
        if path.parent.name == finished:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("oneway.runs.atomic.replace_file", killed)
        with suppress(KeyboardInterrupt, Interrupted):
            predict_files(doubtful, [str(photos)], Outputs(out), QUIET)
    predict_files(doubtful, [str(photos)], Outputs(out), QUIET, resume=True)
    predict_files(doubtful, [str(photos)], Outputs(out.parent / "plain"), QUIET)
    for name in ("masks/a.png", "masks/b.png", "overlays/a.jpg", "overlays/b.jpg"):
        assert (out / name).read_bytes() == (out.parent / "plain" / name).read_bytes(), name


def test_two_calls_do_not_write_into_one_folder(model, photos, tmp_path):
    """As by default, beside each other: the second is refused before anything of it is written. Then it may."""
    out, beside = tmp_path / "out", replace(model, half=True)
    with Outputs(out).claimed({"oneway": "0.1.0"}):
        before = (out / "predictions.json").read_bytes()
        with pytest.raises(UserError, match=f"{out}: process {os.getpid()} on .* writes to it. Wait for it to end"):
            predict_files(beside, [str(photos / "00.jpg")], Outputs(out), QUIET)
        assert (out / "predictions.json").read_bytes() == before
        assert not (out / "masks").exists()
    predict_files(beside, [str(photos / "00.jpg")], Outputs(out), QUIET)
    assert {path.name for path in out.iterdir()} == {"predictions.json", "masks", "overlays"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_leaves_an_index_of_what_is_done(model, tmp_path, monkeypatch, capfd, number):
    """And so do SIGTERM and a closed terminal: those that are written count, of all; the status is the shell's."""
    for index in range(6):  # of different sizes, and hence one by one
        Image.fromarray(render(0, index, 32, 32 * (index + 1))[0]).save(tmp_path / f"{index}.png")
    calls = []
    usual = Predictor.predict_batch

    def interrupted(self, images, *how):
        calls.append(len(images))
        if len(calls) == 4:
            os.kill(os.getpid(), number)
        return usual(self, images, *how)

    monkeypatch.setattr(Predictor, "predict_batch", interrupted)
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as caught, stops_as_by_ctrl_c():
        predict_files(model, [str(tmp_path)], Outputs(tmp_path / "out"), QUIET, as_json=True)
    assert signal.getsignal(number) == before
    masks = len(list(tmp_path.glob("out/masks/*.png")))
    index = json.loads((tmp_path / "out/predictions.json").read_text())
    assert (index["images"], index["stopped"], tuple(index["classes"])) == (masks, True, CLASSES)
    printed = json.loads(capfd.readouterr().out)
    assert {key: printed[key] for key in index} == index
    assert len(printed["results"]) == masks
    assert str(caught.value) == f"Stopped after {masks} of 6 images; results: {tmp_path / 'out'}; --resume continues"
    assert (caught.value.exit_status, masks <= 3) == (128 + number, True)


@pytest.mark.parametrize(
    ("fails", "number", "advice"),
    [
        ("make_folders", errno.EROFS, "(Read-only file system)."),
        ("replace_file", errno.EACCES, "Make it writable, or choose another place."),
        ("replace_file", errno.ENOSPC, "Make room there."),
    ],
)
def test_a_disk_that_takes_no_results_can_be_changed_for_another(model, tmp_path, monkeypatch, fails, number, advice):
    """The message names the flag, beside what is wrong."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    Image.fromarray(render(0, 0, 32, 64)[0]).save(tmp_path / "a.png")
    monkeypatch.setattr(f"oneway.runs.atomic.{fails}", refuse)
    with pytest.raises(UserError, match=re.escape(f"{advice} With --out DIR, results go elsewhere.")):
        predict_files(model, [str(tmp_path / "a.png")], Outputs(tmp_path / "out"), QUIET)
