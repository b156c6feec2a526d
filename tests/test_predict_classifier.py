"""What a model that classifies does: a table of classes, and what is not for it, such as videos and masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneway.common.errors import UserError
from oneway.config import Model
from oneway.data.published.cifar10 import CLASSES
from oneway.models import build
from oneway.runs import TrainedModel, save_model
from oneway.tools.predict import Outputs, Predictor, load, predict_files
from small_runs import QUIET


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Predictor:
    path, config = tmp_path_factory.mktemp("model") / "model.safetensors", Model(name="wrn-28-2")
    save_model(path, TrainedModel(build(config, len(CLASSES), seed=0), CLASSES, ()), config)
    return load(path, "cpu")


@pytest.fixture
def photo(tmp_path) -> Path:
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_classes_come_as_a_table(classifier, photo, tmp_path, capfd):
    """As CSV, and it is said why; nothing is written."""
    Image.new("RGB", (48, 40)).save(tmp_path / "other.bmp")
    (tmp_path / "z.png").write_bytes(b"broken")
    assert predict_files(classifier, [str(tmp_path)], Outputs(tmp_path / "out"), QUIET) == 1
    printed = capfd.readouterr()
    header, *lines = printed.out.splitlines()
    assert header == "image,class,confidence"
    assert [line.split(",")[0].rpartition("/")[2] for line in lines] == ["other.bmp", photo.name]
    assert all(line.split(",")[1] in CLASSES for line in lines)
    assert "classifies" in printed.err
    assert "z.png" in printed.err
    assert not (tmp_path / "out").exists()


def test_a_model_is_asked_for_what_it_gives(classifier):
    """The class of an image and its probability; of masks it says that it has none."""
    image = np.zeros((32, 32, 3), np.uint8)
    with pytest.raises(UserError, match="classify"):
        classifier.predict(image)
    name, confidence = classifier.classify(image)
    assert name in CLASSES
    assert 0.1 <= confidence <= 1


def test_a_video_is_named_as_failed(classifier, photo, tmp_path, capfd):
    """With the way out, and in the exit status; the images beside it are classified."""
    video = tmp_path / "drive.mp4"
    video.touch()
    assert predict_files(classifier, [str(video), str(photo)], Outputs(tmp_path / "out"), QUIET) == 1
    printed = capfd.readouterr()
    assert f"{video}: a video" in printed.err
    assert "frames" in printed.err
    assert [line.split(",")[0] for line in printed.out.splitlines()] == ["image", str(photo)]


def test_what_is_left_out_is_said(classifier, photo, tmp_path, capfd):
    """As it is of a model that makes masks; of a folder and of a pattern."""
    for name in ("photo.heic", "photos.zip"):
        (tmp_path / name).touch()
    for path in (tmp_path, tmp_path / "*"):
        assert predict_files(classifier, [str(path)], Outputs(tmp_path / "out"), QUIET) == 0
        said = capfd.readouterr().err
        assert "Not read, and left out: 1 of kind .heic." in said
        assert f"left out: 1 shard or archive ({tmp_path / 'photos.zip'} is the first)" in said


def test_the_folder_for_masks_does_not_matter(classifier, photo, tmp_path):
    """It may hold anything: nothing is written there."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "letter.txt").write_text("mine")
    assert predict_files(classifier, [str(photo)], Outputs(out), QUIET) == 0
    assert [path.name for path in out.iterdir()] == ["letter.txt"]


def test_classes_are_json_for_machines(classifier, photo, tmp_path, capfd):
    """In place of the table, with what failed."""
    (tmp_path / "drive.mp4").touch()
    paths = [str(photo), str(tmp_path / "drive.mp4")]
    assert predict_files(classifier, paths, Outputs(tmp_path / "out"), QUIET, as_json=True) == 1
    printed = json.loads(capfd.readouterr().out)
    (result,), (error,) = printed["results"], printed["errors"]
    name, confidence = classifier.classify(photo)
    assert result == {"image": str(photo), "class": name, "confidence": pytest.approx(confidence)}
    assert "drive.mp4: a video" in error
