"""Images of four bands, of which `dataset.yaml` chooses three: what is trained on is what is predicted from."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from data.folders import refusal, write
from data.small_sets import trained_on_stripes
from oneway.common.errors import UserError
from oneway.config import Data
from oneway.data import list_files, load
from oneway.data.decode.header import read_header
from oneway.data.decode.images import read_image
from oneway.data.folder import list_folder
from oneway.data.image_style import ImageStyle
from oneway.tools.evaluate_run import evaluate_run
from oneway.tools.export import export_model
from oneway.tools.export.formats import METADATA
from oneway.tools.predict import Outputs, predict_files
from oneway.tools.predict import load as load_model
from small_runs import QUIET, save_tiny

CHOSEN = (4, 3, 2)


def four_bands(seed, size=(32, 64)):
    return np.random.default_rng(seed).integers(256, size=(*size, 4), dtype=np.uint8)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Noise in four bands, masks of stripes, and a run on three of the bands."""
    return trained_on_stripes(tmp_path_factory.mktemp("bands"), four_bands, "tif", "bands: [4, 3, 2]")


@pytest.mark.parametrize("size", [(32, 64), (1200, 700)])
@pytest.mark.parametrize("bands", [(4, 3, 2), (1, 1, 1), (1, 2, 3)])
@pytest.mark.parametrize("kind", ["RGBA", "RGBX"])
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_chosen_bands_are_read(tmp_path, bands, size, kind, compression):
    """Of small images, and of those that are converted in parts; whether the fourth is alpha or not."""
    pixels = four_bands(0, size)
    Image.frombytes(kind, size[::-1], pixels.tobytes()).save(tmp_path / "a.tif", compression=compression)
    assert np.array_equal(read_image(tmp_path / "a.tif"), pixels[..., :3])
    assert read_header(tmp_path / "a.tif").further_band
    assert np.array_equal(
        read_image(tmp_path / "a.tif", style=ImageStyle(bands)), pixels[..., [band - 1 for band in bands]]
    )


def test_an_image_with_fewer_bands_is_named(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png: 3 bands can be read, and band 4 is asked for"):
        read_image(tmp_path / "a.png", style=ImageStyle(CHOSEN))


def test_the_data_set_and_the_model_know_them(place):
    """Decoded images are these bands; they are said, and warned of no more; the model file keeps them."""
    config = Data(name="folder", path=place / "data", cache=place / "cache")
    dataset = load(config)
    samples = dataset.read("train")
    number = int(samples.names[0].removeprefix("images/")[0])
    assert np.array_equal(samples.image(0), four_bands(number)[..., [3, 2, 1]])
    assert any("Bands 4, 3 and 2 of images" in remark for remark in dataset.review())
    assert not any("not used" in remark for remark in dataset.review())
    assert load_model(place / "run", "cpu").image_style == ImageStyle(CHOSEN)


def test_files_are_predicted_in_these_bands(place, tmp_path):
    """As an array of them is; by the command as by Python; a video has none of them."""
    model = load_model(place / "run", "cpu")
    Image.fromarray(four_bands(9)).save(tmp_path / "x.tif")
    expected = model.predict(four_bands(9)[..., [3, 2, 1]]).labels
    assert np.array_equal(model.predict(tmp_path / "x.tif").labels, expected)
    assert predict_files(model, [str(tmp_path / "x.tif")], Outputs(tmp_path / "out"), QUIET) == 0
    assert np.array_equal(np.asarray(Image.open(tmp_path / "out" / "masks" / "x.png")), expected)
    for kind in ("RGBA", "RGBX", "CMYK"):
        given = Image.frombytes(kind, (64, 32), four_bands(9).tobytes())
        assert np.array_equal(model.predict(given).labels, expected)
    with pytest.raises(UserError, match="image: of kind RGB, and the model sees bands 4, 3 and 2"):
        model.predict(Image.new("RGB", (64, 32)))
    (tmp_path / "film.mp4").write_bytes(b"")
    assert predict_files(model, [str(tmp_path / "film.mp4")], Outputs(tmp_path / "film"), QUIET) == 1


def test_an_export_names_them(tmp_path):
    """In the card and in the file, where RGB would be wrong."""
    factory = save_tiny(tmp_path / "model.safetensors", ("a", "b"), image_style=ImageStyle(CHOSEN))
    export_model(tmp_path / "model.safetensors", tmp_path / "model.pt2", "labels", QUIET, factory=factory)
    card = (tmp_path / "model.pt2.md").read_text(encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        about = json.loads(archive.read(f"archive/extra/{METADATA}"))
    assert about["bands"] == list(CHOSEN)
    for text in (card, about["input"]):
        assert "bands 4, 3 and 2 of a file in this order" in text
        assert "RGB" not in text


def test_other_bands_are_another_test(place, tmp_path):
    """Scores of a model on what it has never seen are refused."""
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for file in (place / "data" / kind).iterdir():
            (tmp_path / "data" / kind / file.name).write_bytes(file.read_bytes())
    for index in range(5):
        Image.fromarray(four_bands(20 + index)).save(tmp_path / "data" / "images" / f"{index}.tif")
    write(tmp_path / "data" / "dataset.yaml", "classes: [a, b]\n")
    with pytest.raises(UserError, match="has learnt from bands 4, 3 and 2 of images"):
        evaluate_run(place / "run", "val", tmp_path / "data", QUIET, cache=tmp_path / "cache")


def test_what_does_not_go_together_is_refused(place, tmp_path):
    """A pool is read in its colours; a band has a number from 1 on."""
    pool = tmp_path / "pool"
    pool.mkdir()
    Image.fromarray(four_bands(0)).save(pool / "a.tif")
    with pytest.raises(UserError, match="images of a pool are used in their colours"):
        list_files(Data(name="folder", path=place / "data", unlabelled=pool, pool="always"))
    found = list_folder(place / "data", None, 0.2, 0)
    assert found.image_style == ImageStyle(CHOSEN)
    for wrong in ("[0, 1, 2]", "[1, 2]", "4"):
        write(tmp_path / "data" / "dataset.yaml", f"bands: {wrong}")
        assert "bands" in refusal(tmp_path / "data")
