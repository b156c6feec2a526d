"""Large photographs are read smaller, as far as their masks allow, and predictions have their full size."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import oneway
from oneway.config import Data
from oneway.data.check.survey import thinned
from oneway.data.decode.images import reduced
from oneway.data.load import list_files, load
from oneway.data.streets import CLASSES, render
from oneway.models.reduced import Reduced
from oneway.runs import open_run
from processes import forked as oneway_process
from small_runs import save_tiny

QUICK = ("--model.weights", "none", "--model.width", "0.125", "--jitter.crop", "64", "64", "--train.iterations", "2")


def photographs(root, factor, labelled=5, unlabelled=2):
    """Scenes of 128×256 pixels and a little more, so many times larger, and masks as sharp as they are."""
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True)
    size = 256 * factor + 3, 128 * factor + 1
    for index in range(labelled + unlabelled):
        image, labels = render(0, index, 128, 256)
        Image.fromarray(image).resize(size, Image.Resampling.BICUBIC).save(root / "images" / f"{index}.jpg")
        if index < labelled:
            Image.fromarray(labels).resize(size, Image.Resampling.NEAREST).save(root / "masks" / f"{index}.png")
    return root


def listed(root, **settings):
    return list_files(Data(name="folder", path=root, **settings))


@pytest.mark.parametrize("factor", range(1, 8))
def test_labels_have_the_size_of_pixels_and_their_places(factor):
    """Pillow decides how many pixels are left; of a ramp, the mean over a square is its middle."""
    for height, width in ((40, 41), (factor, 1), (3 * factor + 1, 7 * factor - 1)):
        ramp = np.add.outer(np.arange(height), np.arange(width)).astype(np.uint8)
        small = reduced(np.repeat(ramp[..., None], 3, axis=2), factor)
        labels = thinned(ramp, factor)
        assert labels.shape == small.shape[:2]
        whole = np.s_[: height // factor, : width // factor]
        assert np.abs(small[..., 0][whole].astype(int) - labels[whole]).max(initial=0) <= 1


@pytest.mark.parametrize("size", [(41, 67), (40, 65), (44, 70)])
def test_a_network_averages_over_squares_as_pillow_does(size):
    image = render(0, 0, *size)[0]
    x = torch.from_numpy(image).permute(2, 0, 1)[None].double() / 255
    small = Reduced(torch.nn.Identity(), 5)(x)[0].permute(1, 2, 0).numpy() * 255
    assert np.abs(small - np.asarray(Image.fromarray(image).reduce(5))).max() < 1  # which are rounded


def test_only_large_images_are_read_smaller(tmp_path):
    """Where none is large enough for the number that was asked for, that is said."""
    small = listed(photographs(tmp_path / "small", 4), reduction="auto")
    assert small.reduction == 1  # 513 pixels
    (remark,) = {*listed(tmp_path / "small", reduction=2).remarks} - {*small.remarks}
    assert "No image is read smaller, though --data.reduction says 2" in remark
    assert "the largest has 1027×513" in remark
    large = listed(photographs(tmp_path / "large", 9), reduction="auto")
    assert large.reduction == 2  # 1153 pixels
    assert any("of 2307×1153 pixels are read at 1/2" in remark for remark in large.remarks)


def test_small_images_among_large_ones_keep_their_pixels(tmp_path):
    root = photographs(tmp_path / "large", 9)
    for index in range(10, 14):
        Image.fromarray(render(0, index, 400, 600)[0]).save(root / "images" / f"{index}.jpg")
    samples = load(Data(name="folder", path=root, reduction="auto", cache=tmp_path / "cache")).read("train")
    assert {tuple(size) for size in samples.sizes.tolist()} == {(577, 1154), (400, 600)}


def test_thin_lines_are_not_given_up(tmp_path):
    root = photographs(tmp_path / "large", 9)
    for mask in (root / "masks").iterdir():
        labels = np.array(Image.open(mask))
        labels[labels == 3] = 0
        labels[7::40] = 3  # lines of a pixel, and nothing else
        Image.fromarray(labels).save(mask)
    found = listed(root, reduction="auto")
    assert found.reduction == 1
    assert any("at 1/2, `class 3` would keep" in remark for remark in found.remarks)
    assert listed(root, reduction=2).reduction == 2  # who asks for it gets it


def test_a_rare_class_is_looked_for(tmp_path):
    """Cracks of a pixel, in the last of many masks."""
    root = photographs(tmp_path / "large", 8, labelled=2)
    for index in range(40):
        for kind, suffix in (("images", "jpg"), ("masks", "png")):
            shutil.copy(root / kind / f"0.{suffix}", root / kind / f"copy{index:02d}.{suffix}")
    assert listed(root, reduction="auto").reduction == 2
    labels = np.array(Image.open(root / "masks" / "copy38.png"))
    labels[5:900:50] = 9
    Image.fromarray(labels).save(root / "masks" / "copy38.png")
    assert listed(root, reduction="auto").reduction == 1


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    root = photographs(folder / "data", 9)
    oneway_process("train", "folder", "--data", root, *QUICK, "--out", folder / "run", cwd=folder, report=False)
    return root, folder / "run"


def test_a_model_predicts_at_full_size_what_it_makes_of_the_small_image(run):
    root, path = run
    assert open_run(path).config.data.reduction == 2  # decided once
    model = oneway.load(path, device="cpu")
    picture = Image.open(root / "images" / "6.jpg")
    small = torch.from_numpy(np.array(picture.reduce(2))).permute(2, 0, 1)[None] / 255
    with torch.no_grad():
        logits = F.interpolate(model.network(small), picture.size[::-1], mode="bilinear", align_corners=False)
    prediction = model.predict(picture)
    assert (torch.from_numpy(prediction.labels) == logits[0].argmax(dim=0)).float().mean() > 0.9999
    assert np.allclose(model.probabilities(picture), logits.softmax(dim=1)[0], atol=1e-5)
    tiled = model.predict(picture, tile=(256, 256))
    assert tiled.labels.shape == prediction.labels.shape
    assert (tiled.labels == prediction.labels).mean() > 0.97
    in_one = model.predict(picture, tile=(640, 1280))  # which holds all that the network sees
    assert np.array_equal(in_one.labels, prediction.labels)


def test_a_small_image_is_seen_as_it_is(run):
    model = oneway.load(run[1], device="cpu")
    image = render(0, 3, 400, 600)[0]
    with torch.no_grad():
        logits = model.network(torch.from_numpy(image).permute(2, 0, 1)[None] / 255)
    full = F.interpolate(logits, image.shape[:2], mode="bilinear", align_corners=False)
    assert (torch.from_numpy(model.predict(image).labels) == full[0].argmax(dim=0)).float().mean() > 0.9999


def test_an_exported_model_makes_images_smaller_itself(tmp_path):
    """By the command, of a network that is exported in a moment."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path, file = tmp_path / "model.safetensors", tmp_path / "model.onnx"
    factory = save_tiny(path, CLASSES, reduction=2)
    done = oneway_process("export", path, "--to", file, "--model.factory", factory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    image = np.random.default_rng(0).integers(256, size=(1153, 2307, 3), dtype=np.uint8)
    (labels,) = onnxruntime.InferenceSession(file).run(None, {"images": image[None]})
    model = oneway.load(path, device="cpu", factory=factory)
    assert labels.shape[1:] == image.shape[:2]
    assert (labels[0] == model.predict(image).labels).mean() > 0.999
    assert (labels[0] == replace(model, reduction=1).predict(image).labels).mean() < 0.9


def test_a_run_that_read_images_as_they_are_goes_on_so(tmp_path):
    """Though large ones have joined since, by `--allow-changes`, of which a new run would choose to see half."""
    root, path = photographs(tmp_path / "data", 1), tmp_path / "run"
    begin = ("train", "folder", "--data", root, *QUICK, "--out", path, "--labels", "all", "--method", "supervised")
    assert oneway_process(*begin, cwd=tmp_path).returncode == 0
    (path / "summary.json").unlink()
    for file in photographs(tmp_path / "large", 9).glob("*/*"):
        file.rename(root / file.parent.name / f"large{file.name}")
    done = oneway_process(*begin, "--resume", "--allow-changes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert oneway.load(path, device="cpu").reduction == 1
    assert listed(root, reduction="auto").reduction == 2


def test_a_run_is_continued_and_judged_at_the_size_it_began_with(run, tmp_path):
    """Three times as large images come in, for which another factor would be chosen."""
    root, path = run
    elsewhere = photographs(tmp_path / "elsewhere", 13, labelled=2, unlabelled=0)
    result = oneway_process("eval", path, "--data", elsewhere, "--json", cwd=tmp_path)
    assert json.loads(result.stdout)["value"] is not None
    again = oneway_process("train", "folder", "--data", root, *QUICK, "--out", path, "--resume", cwd=tmp_path)
    assert "nothing to do" in again.stdout
