"""What the page of `oneway explore` computes, and what it starts from."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from data.folders import write
from explore.serving import STRONG, by_hand, png
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.config import Config, Data, Jitter, Model, Perturb, build, merge
from oneway.config.recipes import recipe
from oneway.data.streets import CLASSES, render
from oneway.draws import PHOTOMETRIC_RANGES, draw_perturbation
from oneway.models.swiftnet import SwiftNet
from oneway.perturb import phtps
from oneway.runs import open_run
from oneway.runs.model_file import TrainedModel, save_model
from oneway.tools.explore import heat, prepare
from oneway.tools.explore.compute import RANGES, Parameters, draw_parameters, perturbation_of
from oneway.tools.explore.images import KEPT_UPLOADS, MOST_PIXELS, ImageStore, most_pixels, shrink
from oneway.tools.local_server import listen
from oneway.tools.train import train
from small_runs import QUIET, SMALL


def plane(text: str, answer: dict[str, Any]) -> np.ndarray:
    values = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    return values.reshape(answer["height"], answer["width"])


def test_a_perturbation_of_chosen_parameters_is_the_one_that_training_draws():
    """Parameters read off a draw perturb an image as the draw does, at the strengths of the run."""
    x = torch.rand(1, 3, 32, 64)
    config = Perturb(photometric=0.7, geometric=1.3, deviation=0.04)
    for seed in range(4):
        expected = phtps(draw_perturbation(seed, 0, 1), x, config)
        found = perturbation_of(draw_parameters(seed, config), x)
        torch.testing.assert_close(found.image(x), expected.image(x), rtol=0, atol=1e-5)
        assert torch.equal(found.valid, expected.valid)


def test_what_training_draws_is_marked_on_the_page():
    """A thousand draws fill the marked ranges and never leave them."""
    colours = draw_perturbation(0, 0, 1000).photometric
    for name, (low, high) in PHOTOMETRIC_RANGES.items():
        values = getattr(colours, name)
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high
        assert RANGES[name][0] <= low < high <= RANGES[name][1]


def test_the_colours_of_a_divergence():
    """Nothing is the first colour, a quarter of the top the middle one, and all beyond the top the last."""
    kl = torch.tensor([0.0, heat.TOP / 4, heat.TOP, 100])
    assert heat.levels(kl).tolist() == [0, 127, 254, 254]
    assert heat.colours().shape == (heat.LEVELS, 3)
    assert heat.colours()[0].sum() < 10  # inferno begins in black
    assert heat.LEVELS == IGNORE


def test_parameters_out_of_range_are_refused():
    """Not a number, too far, and a channel twice."""
    for wrong in (
        {"hue": float("nan")},
        {"contrast": 4},
        {"permutation": (0, 0, 1)},
        {"displacements": ((0, 0.3),) * 4},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Parameters(**wrong)


def test_answers_are_those_of_python(client, page_content, two_runs):
    """Mean KL, agreement and maps of both models, for the same parameters: to 1e-3, and to the pixel."""
    picture = next(iter(page_content.store.offered.values()))
    answer = client.post("/api/compare", json={"image": picture.key, **STRONG}).json()
    for folder, run in zip(two_runs, answer["runs"], strict=True):
        assert run["mean_kl"] == pytest.approx(by_hand(folder, picture.x, STRONG), abs=1e-3)
        prediction, target, kl = (plane(run[name], answer) for name in ("prediction", "target", "kl"))
        valid = target != IGNORE
        assert np.array_equal(valid, prediction != IGNORE)
        assert np.array_equal(valid, kl != IGNORE)
        assert valid.mean() == pytest.approx(answer["valid"])
        assert (prediction == target)[valid].mean() == pytest.approx(run["agreement"], abs=1e-6)
        approximate = heat.TOP * (kl[valid] / 254) ** 2
        assert approximate.mean() == pytest.approx(run["mean_kl"], rel=0.05, abs=0.002)


def test_parameters_may_change_in_any_order(client, page_content):
    """Results that are kept for later requests change no answer."""
    keys = list(page_content.store.offered)[:2]
    questions = [
        {"image": keys[0], **STRONG},
        {"image": keys[0], **STRONG, "hue": 0.1},
        {"image": keys[1], **STRONG},
        {"image": keys[0], **STRONG, "displacements": [[0, 0]] * 4},
        {"image": keys[0], **STRONG},
    ]
    answers = [client.post("/api/compare", json=question).json() for question in questions]
    assert answers[0] == answers[-1]
    assert len({answer["runs"][0]["mean_kl"] for answer in answers}) == 4


def test_nothing_changed_means_no_divergence(client, page_content):
    """At rest, every pixel is valid and both predictions are the same."""
    answer = client.post("/api/compare", json={"image": next(iter(page_content.store.offered))}).json()
    assert answer["valid"] == 1
    for run in answer["runs"]:
        assert run["mean_kl"] == pytest.approx(0, abs=1e-5)
        assert run["agreement"] > 0.999


def test_own_images(client, two_runs):
    """An uploaded image can be asked about; a large one is made smaller, a turned one upright."""
    pixels, _ = render(1, 3, 64, 128)
    added = client.post(
        "/api/images", content=png(pixels), headers={"Content-Type": "image/png", "X-Name": "caf%C3%A9"}
    )
    assert added.status_code == 201
    assert (added.json()["name"], added.json()["height"], added.json()["width"]) == ("café", 64, 128)
    answer = client.post("/api/compare", json={"image": added.json()["key"], **STRONG}).json()
    x = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    assert answer["runs"][0]["mean_kl"] == pytest.approx(by_hand(two_runs[0], x, STRONG), abs=1e-3)

    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (2000, 3000)).save(buffer, format="JPEG", exif=exif)
    large = client.post("/api/images", content=buffer.getvalue(), headers={"Content-Type": "image/jpeg"}).json()
    assert large["height"] * large["width"] <= MOST_PIXELS
    assert large["width"] / large["height"] == pytest.approx(1.5, abs=0.01)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_upload_is_as_documented(client, tmp_path):
    """By the very command, and in the types that are named."""
    page = (Path(__file__).parents[2] / "docs/explore.md").read_text(encoding="utf-8")
    assert re.findall(r"`(image/\w+)`", page) == client.get("/api/about").json()["upload"]["types"]
    (command,) = re.findall(r"^curl .*/api/images .*$", page, re.MULTILINE)
    Image.fromarray(render(1, 3, 64, 128)[0]).save(tmp_path / "street.jpg")
    words = shlex.split(command.replace("http://127.0.0.1:8421", str(client.base_url)))
    added = json.loads(subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=60).stdout)
    assert (added["height"], added["width"]) == (64, 128)
    assert client.post("/api/compare", json={"image": added["key"]}).status_code == 200


def test_only_the_latest_uploads_are_kept():
    """So that memory does not grow with every image that someone tries."""
    store = ImageStore([], most=MOST_PIXELS)
    added = [store.decode(png(np.full((32, 32, 3), value, dtype=np.uint8)), "a") for value in range(KEPT_UPLOADS + 1)]
    for picture in added:
        store.add(picture)
    assert store.find(added[0].key) is None
    assert all(store.find(picture.key) for picture in added[1:])


def test_images_are_made_smaller_where_there_are_many_classes():
    """A prediction's memory is bounded, however many classes there are."""
    pixels = np.zeros((512, 1024, 3), dtype=np.uint8)
    assert shrink(pixels, most_pixels(19)).shape == (512, 1024, 3)
    height, width, _ = shrink(pixels, most_pixels(255)).shape
    assert 255 * height * width <= 2**24 * 1.01
    assert width / height == pytest.approx(2, abs=0.02)
    with pytest.raises(UserError, match="narrow"):
        shrink(np.zeros((8, 4096, 3), dtype=np.uint8), most_pixels(19))


def test_two_runs_need_the_same_classes(two_runs, tmp_path):
    """They share one legend."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_bytes((two_runs[0] / "config.yaml").read_bytes())
    trained = TrainedModel(SwiftNet(2, width=0.125), ("cat", "dog"), ((0, 0, 0), (9, 9, 9)))
    save_model(other / "model.safetensors", trained, Model(width=0.125))
    with pytest.raises(UserError, match=r"other: has the classes cat, dog"):
        prepare([two_runs[0], other], QUIET)


def test_embedded_scenes_replace_missing_images(two_runs, tmp_path):
    """A run whose data are gone can still be explored, and the page says that its images are others."""
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("summary.json", "model.safetensors"):
        (moved / name).write_bytes((two_runs[0] / name).read_bytes())
    config = Config(recipe="folder", data=Data(name="folder", path=tmp_path / "gone"), model=Model(width=0.125))
    (moved / "config.yaml").write_text(config.to_yaml())
    found = prepare([moved], QUIET)
    assert "gone" in found.remark
    assert "street scenes" in found.remark
    assert "--data" in found.remark
    assert found.store.offered


def test_images_say_what_they_were_in_training(tmp_path):
    """Those that were held out validate still, whatever has been labelled since; what taught a run is called so."""
    photos = tmp_path / "photos"
    for number in range(12):
        image, labels = render(3, number, 32, 64)
        for folder, pixels in (("images", image), ("masks", np.minimum(labels, len(CLASSES) - 1))):
            (photos / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(photos / folder / f"{number:02}.png")
    (photos / "masks").rename(tmp_path / "masks")
    shutil.copytree(
        tmp_path / "masks", photos / "masks", ignore=lambda *_: [f"{number:02}.png" for number in range(5, 12)]
    )
    description = write(photos / "dataset.yaml", f"classes: [{', '.join(CLASSES)}]\n")
    data = {"path": photos, "cache": tmp_path / "cache", "holdout": 0.4}
    changes = merge(SMALL, {"labels": "2", "data": data, "model": {"weights": None}})
    run = tmp_path / "run"
    train(build(merge(recipe("folder").model_dump(), changes), source="test"), run, False, QUIET)
    split = open_run(run).split

    def parts(**options: Any) -> dict[str, str]:
        shown = prepare([run], QUIET, cache=tmp_path / "cache", **options).store.offered.values()
        return {picture.name: picture.part for picture in shown}

    assert parts() == dict.fromkeys(split.validating, "validation")
    shutil.copytree(tmp_path / "masks", photos / "masks", dirs_exist_ok=True)
    assert parts() == dict.fromkeys(split.validating, "validation")
    some = {split.validating[0]: "validation", split.labelled[0]: "labelled", "images/11.png": "unlabelled"}
    write(photos / "val.txt", "\n".join(some))
    with description.open("a") as file:
        file.write("train: {images: images, masks: masks}\nval: {images: images, masks: masks, list: val.txt}\n")
    assert parts() == some
    renamed = Path(shutil.copytree(photos, tmp_path / "renamed"))
    for path in [*renamed.glob("*/*.png")]:
        path.rename(path.with_name(f"as-{path.name}"))
    write(renamed / "val.txt", (photos / "val.txt").read_text().replace("/", "/as-"))
    unseen = some | {split.validating[0]: "unseen"}
    assert parts(data=renamed) == {name.replace("/", "/as-"): part for name, part in unseen.items()}


def test_images_are_numbered_from_one(two_runs):
    """So that a script can name them without asking, however they are spread over the validation set."""
    keys = list(prepare([two_runs[0]], QUIET).store.offered)
    assert keys == [f"sample-{number}" for number in range(1, len(keys) + 1)]


def test_classifiers_are_refused(tmp_path):
    """There are no pixels to show."""
    config = Config(
        recipe="moons",
        method="simple-noise",
        data=Data(name="moons"),
        jitter=Jitter(crop=None),
        model=Model(name="mlp"),
    )
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    with pytest.raises(UserError, match="segmentation"):
        prepare([tmp_path], QUIET)


def test_a_missing_package_is_named_with_the_command_that_installs_it(two_runs, monkeypatch):
    """Before any model is loaded."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match=r"uvicorn.* pip install 'oneway\[explore\]'"):
        prepare(two_runs, QUIET)


def test_a_taken_port_is_named():
    """Asked for, it is refused; not asked for, another one is found."""
    with listen(0) as first:
        port = first.getsockname()[1]
        assert first.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UserError, match=str(port)):
            listen(port)
        with pytest.raises(UserError, match="99999"):
            listen(99999)
        with listen(None, preferred=port) as second:
            assert second.getsockname()[1] != port
