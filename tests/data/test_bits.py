"""Samples of 16 bits, of which a camera fills fewer: with `bits` in `dataset.yaml`, all 256 levels are used."""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from rich.console import Console

from data.encoders import png
from data.folders import mask, refusal, write
from data.small_sets import trained_on_stripes
from oneway.common.errors import UserError
from oneway.config import Config, Data, read_yaml
from oneway.data import list_files, load
from oneway.data.check import check_data
from oneway.data.decode.images import read_image
from oneway.data.folder import list_folder
from oneway.data.image_style import ImageStyle
from oneway.tools.evaluate_run import evaluate_run
from oneway.tools.explore import prepare
from oneway.tools.export import Int8, export_model
from oneway.tools.export.formats import METADATA
from oneway.tools.predict import Outputs, predict_files
from oneway.tools.predict import load as load_model
from oneway.tools.suggest import suggest
from oneway.tools.train import train
from small_runs import QUIET, save_tiny

TWELVE = ImageStyle(bits=12)
PAGE = (Path(__file__).parents[2] / "docs/export.md").read_text(encoding="utf-8")


SEES_OTHERS = r"has learnt from the colours \(12 bits of 16\) of images, and the colours would be"


def samples(seed, shape=(32, 64), bits=12):
    """Every number of so many bits, in some order, as far as there is room."""
    return np.random.default_rng(seed).integers(2**bits, size=shape, dtype=np.uint16)


def in_colours(seed):
    """An ordinary image."""
    return samples(seed, (32, 64, 3), bits=8).astype(np.uint8)


def _findings(config):
    return check_data(list_files(config), QUIET).findings


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Noise in 12 bits of 16, masks of stripes, and a run on them."""
    return trained_on_stripes(tmp_path_factory.mktemp("bits"), samples, "png", "bits: 12")


@pytest.mark.parametrize("shape", [(32, 64), (1200, 700)])
@pytest.mark.parametrize("bits", [9, 10, 12, 14, 16])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_the_largest_number_is_white(tmp_path, shape, bits, suffix):
    """Of small images, and of those that are converted in parts."""
    stored = samples(0, shape, bits)
    Image.fromarray(stored).save(tmp_path / f"a.{suffix}")
    seen = read_image(tmp_path / f"a.{suffix}", style=ImageStyle(bits=bits))
    assert np.array_equal(seen, np.repeat((stored.astype(int) * 256 // 2**bits)[..., None], 3, axis=2))


@pytest.mark.parametrize("photometric", ["rgb", "minisblack"])
def test_colours_keep_their_lower_bits(tmp_path, photometric):
    """Of a TIFF of colours Pillow reads the upper 8 bits alone: 16 levels of a camera's 12."""
    stored = samples(0, (32, 64, 3))
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric=photometric, planarconfig="contig")
    assert np.array_equal(read_image(tmp_path / "a.tif", style=TWELVE), stored >> 4)
    assert np.array_equal(read_image(tmp_path / "a.tif", style=ImageStyle((3, 2, 1), 12)), stored[..., ::-1] >> 4)
    assert read_image(tmp_path / "a.tif").max() == 15


def test_colours_of_which_lower_bits_cannot_be_read_are_refused(tmp_path):
    """Rather than shown with 16 levels."""
    (tmp_path / "a.png").write_bytes(png(2, 1, 16, 2, b"\0" + samples(0, (6,)).astype(">u2").tobytes()))
    assert read_image(tmp_path / "a.png").max() < 16
    with pytest.raises(UserError, match=r"a\.png: has colours of 16 bits, .* from a PNG.* Save it as TIFF"):
        read_image(tmp_path / "a.png", style=TWELVE)


def test_images_of_8_bits_stay_as_they_are(tmp_path):
    pixels = samples(0, (32, 64, 3), bits=8).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png", style=TWELVE), pixels)


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 5)])
def test_a_sample_with_more_bits_is_named(tmp_path, shape):
    stored = samples(0, shape)
    stored[0, 0] = 5000
    together = {"planarconfig": "contig"} if stored.ndim > 2 else {}
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="minisblack", **together)
    with pytest.raises(UserError, match=r"a\.tif: a sample of 5000 needs 13 bits, and `bits: 12`"):
        read_image(tmp_path / "a.tif", style=TWELVE)


def test_the_line_that_check_names_is_all_it_takes(place, tmp_path):
    """Nearly black images are refused without it; with it there are none, and it is said."""
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
        for file in (place / "data" / kind).iterdir():
            (tmp_path / kind / file.name).write_bytes(file.read_bytes())
    config = Data(name="folder", path=tmp_path, cache=tmp_path / "cache")
    (message,) = {one.message for one in _findings(config) if "black" in one.kind}
    assert "of 256 levels 16 are seen; `bits: 12` in dataset.yaml spreads them over all" in message
    with pytest.raises(UserError, match=r"1 error in the data(?s:.*)`bits: 12` in dataset\.yaml spreads"):
        load(config).review()
    write(tmp_path / "dataset.yaml", "bits: 12\n")
    assert not [one for one in _findings(config) if "black" in one.kind]
    assert any("16 bits are taken to use 12 of them" in remark for remark in load(config).review())


@pytest.mark.parametrize(
    ("largest", "said"),
    [((10_200, 9000, 3000), "bits: 14"), ((16_383,) * 3, "bits: 14"), ((5000, 40), "bits: 14"), ((16_384, 9), "")],
)
def test_dark_sets_in_16_bits_are_said_once(tmp_path, largest, said):
    """With the number of bits that all images fit into; where one is bright, dark ones stay what they are."""
    for index, most in enumerate(largest * 3):
        stored = (samples(index, (600, 1100), bits=16).astype(float) * most / 65535).astype(np.uint16)
        stored[0, 0] = most
        (tmp_path / "images").mkdir(exist_ok=True)
        tifffile.imwrite(tmp_path / "images" / f"{index}.tif", stored)
        if index < 4:
            mask(tmp_path / "masks" / f"{index}.png", np.eye(600, 1100))
    config = Data(name="folder", path=tmp_path, cache=tmp_path / "cache", reduction=2)
    dark = [one for one in _findings(config) if one.kind == "Dark images in 16 bits"]
    assert len(dark) == bool(said)
    if said:
        assert f"no value of the {3 * len(largest)} images in 16 bits exceeds" in dark[0].message
        assert f"`{said}` in dataset.yaml spreads them over all" in dark[0].message
        assert not any("bits: " in one.message and said not in one.message for one in _findings(config))
        write(tmp_path / "dataset.yaml", said)
        assert not {one.kind for one in _findings(config)} & {"Dark images in 16 bits", "Images that cannot be read"}


def test_the_data_set_and_the_model_know_it(place):
    """Decoded images, and files that are predicted, have all levels; the model file keeps the number."""
    dataset = load(Data(name="folder", path=place / "data", cache=place / "cache"))
    read = dataset.read("train")
    number = int(read.names[0].removeprefix("images/")[0])
    assert np.array_equal(read.image(0)[..., 0], samples(number) >> 4)
    assert load_model(place / "run", "cpu").image_style == TWELVE


@pytest.mark.parametrize(
    ("picture", "line"),
    [(partial(samples, bits=14), "bits: 14"), (in_colours, "bands: [3, 2, 1]")],
    ids=["bits", "bands"],
)
def test_a_run_that_goes_on_sees_images_as_it_began(tmp_path, picture, line):
    """A line that training itself proposes would make them four times as bright in the middle of the run."""
    trained_on_stripes(tmp_path, picture, "png", "")
    (tmp_path / "run" / "summary.json").unlink()
    config = Config.model_validate(read_yaml(tmp_path / "run" / "config.yaml"))
    write(tmp_path / "data" / "dataset.yaml", f"classes: [a, b]\n{line}\n")
    with pytest.raises(UserError, match=r"training data, as they are read: .* validation data, as they"):
        train(config, tmp_path / "run", resume=True, console=QUIET)
    write(tmp_path / "data" / "dataset.yaml", "classes: [a, b]\n")
    assert train(config, tmp_path / "run", resume=True, console=QUIET)["iterations"] == 4


def test_a_teacher_sees_what_it_has_learnt_to_see(place, tmp_path):
    """Images of which it would see other bits are refused; of large ones that are read at another size, it is said."""
    shutil.copytree(place / "data", tmp_path / "data")
    config = Config.model_validate(read_yaml(place / "run" / "config.yaml"))
    config = config.changed(method="mt-colour-cutmix", teacher=place / "run", train={"iterations": 1})
    told, smaller = io.StringIO(), config.changed(data={"reduction": 3})
    train(smaller, tmp_path / "run", resume=False, console=Console(file=told, width=999))
    assert "large images were read at up to 1/1 of their size for it, and at up to 1/3 here" in told.getvalue()
    write(tmp_path / "data" / "dataset.yaml", "classes: [a, b]\nbits: 14\n")
    with pytest.raises(UserError, match=r"has learnt from the colours \(12 bits of 16\) .* \(14 bits of 16\)"):
        train(config.changed(data={"path": tmp_path / "data"}), tmp_path / "other", resume=False, console=QUIET)


def test_files_are_predicted_so(place, tmp_path):
    """As an array of the upper bits is; by the command as by Python."""
    model = load_model(place / "run", "cpu")
    Image.fromarray(samples(9)).save(tmp_path / "x.png")
    expected = model.predict(np.repeat((samples(9) >> 4).astype(np.uint8)[..., None], 3, axis=2)).labels
    for given in (tmp_path / "x.png", samples(9), np.dstack([samples(9)] * 3), Image.open(tmp_path / "x.png")):
        assert np.array_equal(model.predict(given).labels, expected)
    with pytest.raises(UserError, match=r"image: a sample of \d+ needs 13 bits, and `bits: 12`"):
        model.predict(samples(9) + np.uint16(4000))
    assert predict_files(model, [str(tmp_path / "x.png")], Outputs(tmp_path / "out"), QUIET) == 0
    assert np.array_equal(np.asarray(Image.open(tmp_path / "out" / "masks" / "x.png")), expected)


def test_other_bits_are_another_test(place, tmp_path):
    """Images sixteen times darker than any it has seen judge no model, quantise none, and are no suggestion."""
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir(parents=True)
        for index in range(5):
            (tmp_path / kind / f"{index + 20}.png").write_bytes((place / "data" / kind / f"{index}.png").read_bytes())
    write(tmp_path / "dataset.yaml", "classes: [a, b]\n")
    run, cache, other = place / "run", tmp_path / "cache", tmp_path / "other"
    with pytest.raises(UserError, match=SEES_OTHERS):
        evaluate_run(run, "val", tmp_path, QUIET, cache=cache)
    with pytest.raises(UserError, match=SEES_OTHERS):
        prepare([run], QUIET, data=tmp_path, cache=cache)
    with pytest.raises(UserError, match=SEES_OTHERS):
        export_model(run, other / "model.onnx", "labels", QUIET, int8=Int8(data=tmp_path, cache=cache))
    shutil.copytree(run, other)
    config = Config.model_validate(read_yaml(run / "config.yaml"))
    (other / "config.yaml").write_text(config.changed(data={"path": tmp_path}).to_yaml())
    with pytest.raises(UserError, match=SEES_OTHERS):
        suggest(other, QUIET, cache=cache)


@pytest.mark.parametrize(("suffix", "kind"), [("onnx", "onnxruntime"), ("xml", "openvino"), ("pt2", "torch")])
@pytest.mark.parametrize("bits", [12, 16])
def test_the_code_of_the_export_page_reads_as_predict_does(tmp_path, monkeypatch, suffix, kind, bits):
    """Shifted by 8 whatever the model says, 12 bits would be nearly black."""
    pytest.importorskip(kind)
    pytest.importorskip("onnxscript")
    factory = save_tiny(tmp_path / "a.safetensors", ("a", "b", "c"), image_style=ImageStyle(bits=bits))
    export_model(tmp_path / "a.safetensors", tmp_path / f"model.{suffix}", "labels", QUIET, factory=factory)
    Image.fromarray(samples(1, bits=bits)).save(tmp_path / "photo.jpg", format="PNG")
    (snippet,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f'"model.{suffix}"' in code]
    monkeypatch.chdir(tmp_path)
    exec(snippet, found := {})
    expected = load_model(tmp_path / "a.safetensors", "cpu", factory).predict(tmp_path / "photo.jpg").labels
    assert len(np.unique(expected)) > 1
    assert np.array_equal(np.asarray(found["labels"]).reshape(expected.shape), expected)


def test_an_export_names_them(tmp_path):
    """In the card and in the file."""
    factory = save_tiny(tmp_path / "model.safetensors", ("a", "b"), image_style=TWELVE)
    export_model(tmp_path / "model.safetensors", tmp_path / "model.pt2", "labels", QUIET, factory=factory)
    card = (tmp_path / "model.pt2.md").read_text(encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        about = json.loads(archive.read(f"archive/extra/{METADATA}"))
    assert about["bits"] == 12
    for text in (card, about["input"]):
        assert "in RGB, of files of 16 bits the upper 8 of the lower 12" in text


def test_what_does_not_go_together_is_refused(place, tmp_path):
    """A pool is read as it is; of 16 bits, at least 9 are in use."""
    pool = tmp_path / "pool"
    pool.mkdir()
    Image.fromarray(samples(0)).save(pool / "a.png")
    with pytest.raises(UserError, match=r"asks for the colours \(12 bits of 16\)"):
        list_files(Data(name="folder", path=place / "data", unlabelled=pool, pool="always"))
    assert list_folder(place / "data", None, 0.2, 0).image_style == TWELVE
    (tmp_path / "data").mkdir()
    for wrong in ("8", "17", "twelve"):
        write(tmp_path / "data" / "dataset.yaml", f"bits: {wrong}")
        assert "bits" in refusal(tmp_path / "data")
