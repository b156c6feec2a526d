"""Facts about using a trained model: what is predicted, what is written, and what is left alone."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import oneway
from oneway.common.errors import UserError
from oneway.config import Model
from oneway.data.streets import CLASSES, COLOURS, render
from oneway.models import build as build_network
from oneway.runs import TrainedModel, save_model
from oneway.tools import evaluate
from oneway.tools.predict import Outputs, Prediction, load, predict_files
from oneway.tools.predict.batches import batches
from oneway.tools.predict.sources import Source, find_sources
from small_runs import QUIET

FORMATS = {".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP", ".bmp": "BMP", ".tif": "TIFF"}


def scene(index: int = 0, height: int = 64, width: int = 128) -> np.ndarray:
    return render(0, index, height, width)[0]


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def photos(tmp_path) -> Path:
    """Two images of one stem in subfolders, and one above."""
    for name in ("a/x.png", "b/x.png", "y.bmp"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene()).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def test_broken_images_are_named_and_the_others_predicted(model, tmp_path, capfd):
    """50 images of mixed sizes and formats, two of them broken: 48 results, two errors, status 1, no leftovers."""
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    sizes, suffixes = [(64, 128), (48, 40), (33, 71)], list(FORMATS)
    for index in range(48):
        height, width = sizes[index % 3]
        Image.fromarray(scene(0, height, width)).save(photos / f"{index:02}{suffixes[index % 5]}")
    (photos / "48.jpg").write_bytes((photos / "00.jpg").read_bytes()[:300])
    (photos / "49.png").write_text("not an image")
    assert predict_files(model, [str(photos)], Outputs(out, confidence=True, facts=True), QUIET) == 1
    errors = capfd.readouterr().err
    assert errors.count("oneway:") == 2
    assert "48.jpg" in errors
    assert "49.png" in errors
    for kind, suffix in {"masks": "png", "overlays": "jpg", "confidence": "png", "json": "json"}.items():
        assert sorted(path.name for path in (out / kind).iterdir()) == [f"{index:02}.{suffix}" for index in range(48)]
    for index in range(48):
        height, width = sizes[index % 3]
        assert Image.open(out / "masks" / f"{index:02}.png").size == (width, height)
    index = json.loads((out / "predictions.json").read_text())
    assert (index["images"], len(index["errors"]), index["classes"]) == (48, 2, list(CLASSES))


def test_images_that_are_nearly_black_are_reported_once(model, photos, tmp_path, capfd):
    """12 bits in 16 beside photographs: how many, and the factor; the exit status is 0."""
    assert predict_files(model, [str(photos)], Outputs(tmp_path / "out"), QUIET) == 0
    assert capfd.readouterr().err == ""
    for name in ("c.tif", "d.png"):
        Image.fromarray(scene()[..., 0].astype(np.uint16) * 16).save(photos / name)
    assert predict_files(model, [str(photos)], Outputs(tmp_path / "out"), QUIET) == 0
    (told,) = capfd.readouterr().err.splitlines()
    assert "2 of 5 images are nearly black" in told
    assert "with `bits: 12` in their dataset.yaml; or multiply the values by 16" in told


def test_pages_that_are_not_used_are_reported(model, photos, tmp_path, capfd):
    """In one line, with the first such file and how many pages it has."""
    for name in ("c.tif", "d.png"):
        first, *others = (Image.fromarray(scene(index)) for index in range(3))
        first.save(photos / name, save_all=True, append_images=others)
    assert predict_files(model, [str(photos)], Outputs(tmp_path / "out"), QUIET) == 0
    (told,) = capfd.readouterr().err.splitlines()
    assert "2 of 5 files have several pages" in told
    assert f"{(photos / 'c.tif').resolve()} has 3)" in told
    Image.fromarray(scene(9)).save(photos / "b.gif", save_all=True, append_images=others)
    predict_files(model, [str(photos / "b.gif")], Outputs(tmp_path / "out"), QUIET)
    assert f"{(photos / 'b.gif').resolve()} has 2 or more)" in capfd.readouterr().err


def test_masks_hold_indices_and_show_the_colours_of_the_classes(model, photos, tmp_path):
    """Indices are those of the evaluation; what any viewer shows is each pixel's class colour."""
    assert predict_files(model, [str(photos / "y.bmp")], Outputs(tmp_path / "out", facts=True), QUIET) == 0
    mask = Image.open(tmp_path / "out/masks/y.png")
    indices = np.asarray(mask)
    expected = evaluate.predict(model.network, evaluate.as_input(torch.tensor(scene())[None]))[0].numpy()
    assert mask.mode == "P"
    assert np.array_equal(indices, expected)
    assert np.array_equal(np.asarray(mask.convert("RGB")), np.array(COLOURS, dtype=np.uint8)[expected])
    facts = json.loads((tmp_path / "out/json/y.json").read_text())
    assert facts["shares"]["sky"] == pytest.approx((expected == CLASSES.index("sky")).mean())
    assert sum(facts["shares"].values()) == pytest.approx(1)


def test_confidence_is_the_largest_probability(model):
    """Softmax of the logits, and between 1/C and 1."""
    prediction = model.predict(scene())
    with torch.no_grad():
        x = evaluate.as_input(torch.tensor(scene())[None])
        probability = torch.nn.functional.interpolate(model.network(x), (64, 128), mode="bilinear").softmax(1)
    np.testing.assert_allclose(prediction.confidence, probability.max(1).values[0].numpy(), atol=1e-5)
    assert prediction.confidence.min() >= 1 / len(CLASSES)


def test_a_mirrored_model_says_of_a_mirrored_image_the_mirrored(trained_run):
    """And its probabilities are the mean of both views', to what interpolation makes of logarithms."""
    mirrored, alone = oneway.load(trained_run, "cpu", mirror=True), oneway.load(trained_run, "cpu")
    image = scene()
    other = np.ascontiguousarray(image[:, ::-1])
    found, turned = mirrored.probabilities(image), mirrored.probabilities(other)
    np.testing.assert_allclose(found, turned[..., ::-1], atol=1e-5)
    both = (alone.probabilities(image) + alone.probabilities(other)[..., ::-1]) / 2
    assert np.abs(found - both).mean() < 0.1 * np.abs(alone.probabilities(image) - both).mean()


def test_results_say_that_they_are_averaged(trained_run, photos, tmp_path):
    """In the index of the results, and only there where they are."""
    for mirror, said in ((True, True), (False, None)):
        model, out = oneway.load(trained_run, "cpu", mirror=mirror), tmp_path / f"out-{mirror}"
        predict_files(model, [str(photos / "y.bmp")], Outputs(out), QUIET)
        assert json.loads((out / "predictions.json").read_text()).get("mirror") is said


def test_one_prediction_for_a_path_an_array_and_a_pillow_image(trained_run, photos, tmp_path):
    """`oneway.load` of a run folder, or of its model file alone, far from the run."""
    shutil.copy(trained_run / "model.safetensors", tmp_path / "alone.safetensors")
    first = oneway.load(trained_run, "cpu").predict(photos / "y.bmp")
    for prediction in (
        oneway.load(tmp_path / "alone.safetensors", "cpu").predict(Image.open(photos / "y.bmp")),
        oneway.load(str(trained_run), "cpu").predict(scene()),
    ):
        assert np.array_equal(prediction.labels, first.labels)
        assert np.array_equal(prediction.confidence, first.confidence)
    assert (first.labels.dtype, first.labels.shape, first.classes) == (np.uint8, (64, 128), CLASSES)
    blend = np.asarray(first.overlay(0.25)).astype(float)
    expected = 0.75 * scene() + 0.25 * np.array(COLOURS)[first.labels]
    assert np.abs(blend - expected).max() <= 1
    first.save(tmp_path / "mask.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "mask.png")), first.labels)
    with pytest.raises(UserError, match=r"Let it end in \.png"):
        first.save(tmp_path / "mask.jpg")


def test_a_view_of_an_array_is_predicted_as_its_copy(model):
    """Also one that runs backwards, as from OpenCV's BGR, or that may not be written to."""
    pixels = scene()
    locked = pixels.copy()
    locked.setflags(write=False)
    for view in (pixels[..., ::-1], pixels[:, ::-1], pixels.swapaxes(0, 1), pixels[::2, ::3], locked):
        for tile in (None, (64, 64)):
            expected = model.predict(view.copy(), tile)
            for found in (model.predict(view, tile), *model.predict_batch([view, view], tile)):
                assert np.array_equal(found.labels, expected.labels)
                assert np.array_equal(found.overlay(), expected.overlay())
        assert np.array_equal(model.probabilities(view), model.probabilities(view.copy()))


def test_a_model_goes_to_another_process(trained_run):
    """By pickle, as for a pool of processes, also when it has predicted."""
    for how in ({}, {"mirror": True}, {"favour": {"car": 2.0}}):
        model = load(trained_run, "cpu", **how)
        expected = model.predict(scene())
        found = pickle.loads(pickle.dumps(model)).predict(scene())
        assert np.array_equal(found.labels, expected.labels)
        assert np.array_equal(found.confidence, expected.confidence)


def test_a_batch_is_of_images_of_any_sizes(model):
    """Each is whatever `predict` takes, and what it refuses is refused here; the results are in the same order."""
    pixels = scene()
    images = [pixels, pixels[:32], Image.fromarray(pixels), pixels[..., 0], pixels[:32, ::-1]]
    found = model.predict_batch(images)
    for one, image in zip(found, images, strict=True):
        assert np.array_equal(one.labels, model.predict(image).labels)
    grey = Image.fromarray(pixels[..., 0]).convert("RGB")
    assert np.array_equal(found[3].labels, model.predict(grey).labels)
    assert model.predict_batch([]) == []
    with pytest.raises(UserError, match="expected H×W×3 bytes in RGB"):
        model.predict_batch([pixels / 255])


def test_images_are_seen_upright(model, tmp_path):
    """An EXIF orientation of 6 turns 64×128 stored pixels into a mask of 128×64, from a file and from Pillow."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(scene()).save(tmp_path / "turned.png", exif=exif)
    expected = model.predict(np.ascontiguousarray(np.rot90(scene(), -1))).labels
    assert expected.shape == (128, 64)
    assert np.array_equal(model.predict(tmp_path / "turned.png").labels, expected)
    assert np.array_equal(model.predict(Image.open(tmp_path / "turned.png")).labels, expected)


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4)), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8), 3, Image.new("F", (4, 4))]
)
def test_what_is_no_image_is_refused(model, image):
    """Floats in an unknown range, nothing at all."""
    with pytest.raises(UserError, match="image"):
        model.predict(image)


def test_results_keep_the_folders_of_their_images(model, photos, tmp_path):
    """Two images of one name in two folders have two masks."""
    assert predict_files(model, [str(photos)], Outputs(tmp_path / "out"), QUIET) == 0
    assert {name for name in files(tmp_path / "out") if name.startswith("masks")} == {
        "masks/a/x.png",
        "masks/b/x.png",
        "masks/y.png",
    }


def test_nothing_but_results_is_overwritten(model, photos, tmp_path):
    """A folder with other content is refused untouched; results within the images are not predicted in turn."""
    before = files(photos)
    with pytest.raises(UserError, match="--out"):
        predict_files(model, [str(photos)], Outputs(photos), QUIET)
    assert files(photos) == before
    for _ in range(2):
        assert predict_files(model, [str(photos)], Outputs(photos / "out"), QUIET) == 0
        assert len(list((photos / "out/masks").rglob("*.png"))) == 3
    with pytest.raises(UserError, match="where results go"):
        predict_files(model, [str(photos / "out/masks/y.png")], Outputs(photos / "out"), QUIET)
    assert {name: content for name, content in files(photos).items() if not name.startswith("out")} == before


def test_results_and_runs_are_not_predicted(model, photos, tmp_path):
    """Results of earlier calls and run folders are passed over, in folders and patterns; a file by its name is not."""
    assert predict_files(model, [str(photos)], Outputs(photos / "a/earlier"), QUIET) == 0
    (photos / "run").mkdir()
    for name in ("config.yaml", "split.json", "suggest.png"):
        shutil.copy(photos / "a/x.png", photos / "run" / name)

    def names(*paths: Path) -> list[str]:
        return [source.name for source in find_sources([str(path) for path in paths], tmp_path / "out")]

    assert names(photos) == ["a/x", "b/x", "y"]
    assert names(photos / "**/*.png") == ["a/x", "b/x"]
    assert names(photos / "a/earlier/masks/y.png", photos / "run/suggest.png") == ["y", "suggest"]
    with pytest.raises(UserError, match="apart from results"):
        names(photos / "a/earlier")


def test_images_with_labels_are_left_out_where_asked(model, tmp_path):
    """Of a data set; elsewhere nobody knows which have some."""
    data, out = tmp_path / "set", tmp_path / "out"
    for name in ("images/x.png", "images/y.png", "masks/x.png"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene()).save(data / name)
    assert predict_files(model, [str(data)], Outputs(out), QUIET, unlabelled=True) == 0
    assert [file for file in files(out) if file.startswith("masks")] == ["masks/images/y.png"]
    with pytest.raises(UserError, match=r"--unlabelled: no labels are found in .*images\. Give the folder that holds"):
        find_sources([str(data / "images")], out, unlabelled=True)
    shutil.copy(out / "masks/images/y.png", data / "masks")
    with pytest.raises(UserError, match=r"--unlabelled: every image of .*set has labels"):
        find_sources([str(data)], out, unlabelled=True)


def test_an_overlay_leaves_black_classes_clear():
    """Background, mostly: it would only darken the photo."""
    image, labels = scene(), np.zeros((64, 128), np.uint8)
    labels[:, 64:] = 1
    laid = Prediction(image, labels, np.ones((64, 128), np.float32), ("background", "cup"), ((0, 0, 0), (200, 0, 0)))
    found = np.asarray(laid.overlay())
    assert np.array_equal(found[:, :64], image[:, :64])
    assert np.abs(found[:, 64:] - (image[:, 64:] / 2 + np.array([100, 0, 0]))).max() <= 1


def test_the_page_counts_as_it_says(trained_run, model, tmp_path, monkeypatch, capsys):
    """Its snippets run as printed, and their numbers are those of the masks."""
    page = (Path(__file__).parent.parent / "docs/predict.md").read_text(encoding="utf-8")
    *_, counting, tabulating = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Image.fromarray(scene()).save("photo.jpg")
    names: dict[str, Any] = {}
    shares = model.predict("photo.jpg").shares()
    common = max(shares, key=shares.__getitem__)
    exec(counting.replace("runs/NAME", str(trained_run)).replace("car", common), names)
    expected = model.predict("photo.jpg").labels == CLASSES.index(common)
    assert names["area"] == names["sizes"].sum() == expected.sum() > 0
    assert len(names["sizes"]) == names["count"]
    predict_files(model, ["photo.jpg"], Outputs(tmp_path / "out"), QUIET, as_json=True)
    Path("results.json").write_text(capsys.readouterr().out)
    exec(tabulating, {})
    (row,) = csv.DictReader(Path("shares.csv").read_text().splitlines())
    assert {name: float(row[name]) for name in CLASSES} == pytest.approx(shares)
    assert Path(row["image"]).name == "photo.jpg"


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    """One with a configuration is a run that has not ended."""
    with pytest.raises(UserError, match=r"not a run folder \(it has no config\.yaml\)\. `oneway runs` lists"):
        load(tmp_path, "cpu")
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match=r"has not ended\. Continue it with: oneway train \S+ --resume$"):
        load(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.jpg", "no such file"),
        ("*.gif", "matches"),
        ("empty", "no image"),
        ("rtsp://camera/1", "an address, and files are predicted"),
        ("", "One of the paths is empty, as by a variable that is not set"),
    ],
)
def test_a_path_to_nothing_is_answered_before_anything_is_written(model, tmp_path, monkeypatch, path, message):
    """With the path in the answer."""
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Image.fromarray(scene()).save("photo.png")
    with pytest.raises(UserError, match=message) as caught:
        predict_files(model, [path], Outputs(Path("out")), QUIET)
    assert path in str(caught.value)
    assert not Path("out").exists()


def test_batches_have_one_size_and_fit_into_memory():
    """Images are neither lost nor doubled; no batch of several has more than 2**20 pixels."""
    shapes = [(512, 512, 3), (100, 80, 3), (2000, 1000, 3)] * 7
    images = [
        (Source(Path(str(index)), str(index), str(index)), np.empty(shape, np.uint8))
        for index, shape in enumerate(shapes)
    ]
    found = list(batches(iter(images)))
    assert sorted(int(source.name) for batch in found for source, _ in batch) == list(range(21))
    assert all(len({image.shape for _, image in batch}) == 1 for batch in found)
    assert all(len(batch) == 1 or sum(image.size // 3 for _, image in batch) <= 2**20 for batch in found)
    assert max(map(len, found)) == 7


def test_the_summary_says_how_many_and_how_fast(model, photos, tmp_path):
    """In one line."""
    text = io.StringIO()
    predict_files(model, [str(photos)], Outputs(tmp_path / "out"), Console(file=text))
    assert text.getvalue().startswith("3 images in ")
    assert "images/s" in text.getvalue().splitlines()[0]


def test_points_are_no_images(tmp_path):
    """The perceptron of two moons is refused."""
    config = Model(name="mlp")
    save_model(tmp_path / "m.safetensors", TrainedModel(build_network(config, 2, 0), ("a", "b"), ()), config)
    with pytest.raises(UserError, match="points"):
        load(tmp_path / "m.safetensors", "cpu")


def test_pictures_that_are_not_read_are_counted(model, photos, tmp_path, capfd):
    """By kind, with the way out; what Pillow reads is predicted."""
    for name in ("a.HEIC", "b.heic", "c.jxl"):
        (photos / name).write_bytes(b"x")
    Image.fromarray(scene()).save(photos / "moving.gif")
    assert predict_files(model, [str(photos)], Outputs(tmp_path / "out"), QUIET) == 0
    assert "Not read, and left out: 2 of kind .heic and 1 of kind .jxl." in capfd.readouterr().err
    assert (tmp_path / "out" / "masks" / "moving.png").is_file()
    for path in photos.rglob("*.*"):
        if path.suffix.lower() not in (".heic", ".jxl"):
            path.unlink()
    with pytest.raises(UserError, match=r"no image or video in this folder\. Not read, and left out: 2 of kind"):
        find_sources([str(photos)], tmp_path / "out")
