"""Facts about exported models: they do what the network does, at every size, and say what they are."""

from __future__ import annotations

import io
import json
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from rich.console import Console
from torch import nn

from oneway.common.errors import UserError
from oneway.config import Model
from oneway.data.streets import CLASSES, COLOURS, render
from oneway.models import build as build_network
from oneway.runs import TrainedModel, save_model
from oneway.tools.export import Output, export_model, formats
from oneway.tools.export.agreement import Agreement, compare, refuse_difference
from oneway.tools.export.card import keep_edited, read_history
from oneway.tools.export.formats import FORMATS, METADATA, Opened, make_onnx
from oneway.tools.export.graph import pool_by_products
from oneway.tools.predict import load
from small_runs import QUIET

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "run_onnx.py"
PAGE = EXAMPLE.parent.parent / "export.md"
SIZES = [(64, 128), (97, 131), (130, 66)]


@pytest.fixture(scope="module")
def graphs() -> dict[str, Any]:
    """Of the run, by what they give: its ONNX and its OpenVINO file are made of one."""
    return {}


@pytest.fixture(scope="module", params=["onnx", "xml", pytest.param("pt2", marks=pytest.mark.slow)])
def exported(request, trained_run, tmp_path_factory, graphs) -> Path:
    """The run as a file that gives labels."""
    if request.param == "xml":
        pytest.importorskip("openvino")

    def make_once(network: nn.Module, output: Output) -> Any:
        if output not in graphs:
            graphs[output] = make_onnx(network, output)
        return graphs[output]

    path = tmp_path_factory.mktemp("exported") / f"model.{request.param}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "make_onnx", make_once)
        export_model(trained_run, path, "labels", QUIET, licence="CC-BY-4.0")
    return path


@pytest.fixture(scope="module")
def opened(exported) -> Opened:
    """The file, ready to run."""
    return FORMATS[exported.suffix].open(exported)


def scenes(count: int, height: int, width: int) -> np.ndarray:
    return np.stack([render(1, index, height, width)[0] for index in range(count)])


def test_files_agree_with_the_network(opened, model):
    """On 20 street scenes at three sizes, one of them odd, at least 99.9 % of the pixels have the same class."""
    for height, width in SIZES:
        images = scenes(20, height, width)
        expected = np.stack([prediction.labels for prediction in model.predict_batch(list(images))])
        labels = opened.result(torch.from_numpy(images)).numpy()
        assert labels.dtype == np.uint8
        assert (labels == expected).mean() >= 0.999


@pytest.mark.parametrize("shape", [(1, 20, 300), (3, 300, 20), (2, 33, 65), (1, 2, 2)])
def test_any_number_of_images_of_any_size(opened, model, shape):
    """Wide, tall and tiny ones, where the grid of the spatial pyramid has one column or a hundred."""
    images = torch.randint(256, (*shape, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = opened.result(images).numpy()
    expected = np.stack([prediction.labels for prediction in model.predict_batch(list(images.numpy()))])
    assert (found == expected).mean() >= 0.999


def test_files_say_what_their_numbers_mean(exported):
    """Classes and colours are in the file, where each format keeps such things; the folders of this machine are not."""
    if exported.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(exported)
        found = session.get_modelmeta().custom_metadata_map
        about = {key: json.loads(found[key]) for key in ("classes", "colours")}
        (given,), (labels,) = session.get_inputs(), session.get_outputs()
        assert (given.name, given.type, given.shape) == ("images", "tensor(uint8)", ["batch", "height", "width", 3])
        assert (labels.name, labels.type, labels.shape) == ("labels", "tensor(uint8)", ["batch", "height", "width"])
    elif exported.suffix == ".xml":
        import openvino

        model = openvino.Core().read_model(exported)
        about = {key: json.loads(model.get_rt_info(["oneway", key]).astype(str)) for key in ("classes", "colours")}
        for port, name, shape in ((model.input(0), "images", "[?,?,?,3]"), (model.output(0), "labels", "[?,?,?]")):
            assert (port.any_name, port.element_type.to_string(), str(port.partial_shape)) == (name, "u8", shape)
    else:
        with zipfile.ZipFile(exported) as archive:
            about = json.loads(archive.read(f"archive/extra/{METADATA}"))
    assert tuple(about["classes"]) == CLASSES
    assert [tuple(colour) for colour in about["colours"]] == list(COLOURS)
    assert b"swiftnet.py" not in exported.read_bytes()


def test_the_card_tells_the_history(exported, trained_run):
    """Counts, method, seed, quality of each class, speed with hardware, agreement and licence."""
    text = exported.with_name(f"{exported.name}.md").read_text(encoding="utf-8")
    summary = json.loads((trained_run / "summary.json").read_text())
    for row in (
        "| data | streets |",
        "| labelled images | 4 |",
        "| further images without labels | 12 |",
        "| method | simple-phtps, variant 1w-ct |",
        "| seed | 3 |",
        "| network | swiftnet, backbone resnet18, width 0.125 |",
        "| licence | CC-BY-4.0 |",
        f"{summary['value']:.1f} % mIoU (95\N{NO-BREAK SPACE}% interval {summary['interval'][0]:.1f} to ",
        f"| sky | {summary['per_class']['sky']:.1f} |",
        "images per second",
        "thread. Lower bounds",
        "largest difference",
    ):
        assert row in text


def test_the_card_of_labels_alone_is_silent_about_other_images(two_runs):
    """They taught nothing, and no branch was another's teacher."""
    rows, _ = read_history(two_runs[0], "resnet18")
    assert rows["method"] == "supervised"
    assert "further images without labels" not in rows


@pytest.mark.parametrize("exported", ["onnx"], indirect=True)
def test_the_example_needs_neither_oneway_nor_torch(exported, model, tmp_path):
    """docs/examples/run_onnx.py writes the mask that `predict` gives."""
    Image.fromarray(scenes(1, 97, 131)[0]).save(tmp_path / "photo.png")
    subprocess.run([sys.executable, EXAMPLE, exported, "photo.png", "mask.png"], cwd=tmp_path, check=True)
    mask, expected = Image.open(tmp_path / "mask.png"), model.predict(tmp_path / "photo.png")
    assert (np.asarray(mask) == expected.labels).mean() >= 0.999
    assert mask.getpalette()[:3] == list(COLOURS[0])
    assert "torch" not in EXAMPLE.read_text().split("import", 1)[1]
    usage = subprocess.run([sys.executable, EXAMPLE, exported], capture_output=True, text=True, check=False)
    assert usage.returncode == 1
    assert usage.stderr.startswith("Runs an exported model")
    assert "run_onnx.py model.onnx photo.jpg mask.png" in usage.stderr


def photo(kind: str) -> Image.Image:
    """A street scene as image files may hold it."""
    colours = Image.fromarray(scenes(1, 97, 131)[0])
    if kind == "16 bits":
        deep = np.asarray(colours.convert("L")).astype(np.uint16) * 257
        return Image.fromarray(deep)
    return colours.convert(kind)


@pytest.mark.parametrize("kind", ["16 bits", "L", "LA", "P", "RGBA"])
@pytest.mark.parametrize("exported", ["onnx"], indirect=True)
def test_the_example_reads_photos_as_predict_does(exported, model, tmp_path, monkeypatch, kind):
    """Grey ones of either depth, palettes and alpha, lying on their side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(kind).save(tmp_path / "photo.png", exif=exif)
    monkeypatch.setattr(sys, "argv", ["run_onnx.py", str(exported), f"{tmp_path}/photo.png", f"{tmp_path}/mask.png"])
    runpy.run_path(str(EXAMPLE))
    found, expected = np.asarray(Image.open(tmp_path / "mask.png")), model.predict(tmp_path / "photo.png").labels
    assert found.shape == (131, 97)
    assert (found == expected).mean() >= 0.999


@pytest.mark.parametrize("kind", ["16 bits", "RGB"])
def test_the_snippets_of_the_page_run_as_printed(exported, model, tmp_path, kind):
    """Each in a process of its own, in a folder with a model and a photo; grey ones of 16 bits are seen as they are."""
    shutil.copytree(exported.parent, tmp_path / "place")
    photo(kind).save(tmp_path / "place/photo.jpg", format="PNG")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (snippet,) = [block for block in blocks if f'"{exported.name}"' in block]
    snippet += "\nnp.save('labels.npy', labels)"
    subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path / "place", check=True)
    labels = np.load(tmp_path / "place/labels.npy").reshape(97, 131)
    assert (labels == model.predict(tmp_path / "place/photo.jpg").labels).mean() > 0.999


def test_a_file_of_another_network_is_noticed(opened):
    """The comparison is one that can fail."""
    other = build_network(Model(width=0.25), len(CLASSES), seed=9).eval()
    with pytest.raises(UserError, match="does not do what the network does"):
        refuse_difference(compare(other, opened))


def test_a_file_that_refuses_a_size_is_noticed(model):
    """As do graphs that were traced too narrowly; the size is named."""

    def narrow(images: torch.Tensor) -> torch.Tensor:
        if images.shape[0] > 1:
            raise RuntimeError("Guard failed")
        x = images.permute(0, 3, 1, 2) / 255
        return F.interpolate(model.network(x), x.shape[-2:], mode="bilinear")

    with pytest.raises(UserError, match=r"fails on 2 images of 97×131 pixels \(RuntimeError: Guard failed\)"):
        compare(model.network, Opened(narrow, narrow))


@pytest.mark.parametrize(
    "agreement", [Agreement(0.9989, 1e-6, 5.0), Agreement(1.0, 0.01, 5.0), Agreement(1.0, float("nan"), 5.0)]
)
def test_a_file_that_disagrees_too_much_is_refused(agreement):
    """Too many other classes, logits that differ too much, and logits that are not finite."""
    with pytest.raises(UserError):
        refuse_difference(agreement)


@pytest.mark.parametrize("cells", [(8, 16), (8, 1), (4, 7), (1, 1), 3, (None, 5)])
@pytest.mark.parametrize("size", [(6, 10), (1, 1), (5, 23), (32, 3)])
def test_pooling_by_products_is_adaptive_pooling(size, cells):
    """PyTorch's own, in double precision; also where cells overlap, and where they outnumber the pixels."""
    x = torch.rand(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pool_by_products(x, cells), F.adaptive_avg_pool2d(x, cells))


class Small(nn.Module):
    """A network of the user's own, exported in a moment."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, classes, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Restless(Small):
    """Never gives the same logits twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + torch.rand(x.shape[0], 1, 1, 1)


class Deciding(Small):
    """Looks at the values before it decides what to do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.mean() > 0.5 else self.layer(1 - x)


class Whole(Small):
    """Classifies whole images."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).mean(dim=(2, 3))


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A function that saves a network of this file as a model."""
    monkeypatch.setitem(sys.modules, "own_networks", sys.modules[__name__])

    def save(kind: type[Small]) -> tuple[Path, str]:
        torch.manual_seed(0)
        factory = f"own_networks:{kind.__name__}"
        path = tmp_path / "model.safetensors"
        save_model(path, TrainedModel(kind(3), ("a", "b|c", "d"), ()), Model(factory=factory))
        return path, factory

    return save


@pytest.mark.parametrize("suffix", [".onnx", ".xml", ".pt2"])
def test_logits_come_at_full_resolution(saved, tmp_path, suffix):
    """N×C×H×W floats, in a new folder; the console tells agreement and speed, the card that the history is unknown."""
    if suffix == ".xml":
        pytest.importorskip("openvino")
    path, factory = saved(Small)
    told, target = io.StringIO(), tmp_path / "a/new" / f"model{suffix}"
    export_model(path, target, "logits", Console(file=told), factory=factory)
    images = scenes(2, 37, 51)
    logits = FORMATS[suffix].open(target).result(torch.from_numpy(images))
    x = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    expected = F.interpolate(load(path, "cpu", factory).network(x), (37, 51), mode="bilinear")
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert told.getvalue().startswith("Exporting")
    assert "largest difference" in told.getvalue()
    assert "images/s" in told.getvalue()
    last = told.getvalue().rpartition("Exported: ")[2]
    assert last.startswith(f"{target} and model.bin (" if suffix == ".xml" else f"{target} (")
    assert ("MB together)" in last) == (suffix == ".xml")
    card = target.with_name(f"model{suffix}.md").read_text(encoding="utf-8")
    assert "history | not known" in card
    assert "1 b\\|c" in card


def test_an_edited_card_is_kept(saved, tmp_path):
    """Under a name that nothing had, and said; one that nobody touched is replaced."""
    path, factory = saved(Small)
    target, card, told = tmp_path / "model.onnx", tmp_path / "model.onnx.md", io.StringIO()
    export_model(path, target, "labels", QUIET, factory=factory)
    written = card.read_text(encoding="utf-8")
    assert keep_edited(card) is None
    for kept in (tmp_path / "model.onnx.md.bak", tmp_path / "model.onnx.md.bak1"):
        card.write_text(f"{written}{kept.name}\n", encoding="utf-8")
        if kept.suffix == ".bak":
            export_model(path, target, "labels", Console(file=told, width=500), factory=factory)
            assert f"edited, and is kept: {kept}" in told.getvalue()
            assert keep_edited(card) is None
        else:
            assert keep_edited(card) == kept
        assert kept.read_text(encoding="utf-8") == f"{written}{kept.name}\n"


@pytest.mark.parametrize(("kind", "message"), [(Restless, "does not do what"), (Deciding, "cannot be exported")])
def test_a_failed_export_leaves_nothing_new(saved, tmp_path, kind, message):
    """Nor does it take away a file that was there before."""
    path, factory = saved(kind)
    target = tmp_path / "model.pt2"
    target.write_text("an earlier export")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=message) as caught:
        export_model(path, target, "labels", QUIET, factory=factory)
    assert str(target) in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before
    assert target.read_text() == "an earlier export"


def test_models_that_classify_are_exported_too(saved, tmp_path):
    """One class for each image."""
    path, factory = saved(Whole)
    export_model(path, tmp_path / "model.pt2", "labels", QUIET, factory=factory)
    labels = FORMATS[".pt2"].open(tmp_path / "model.pt2").result(torch.from_numpy(scenes(3, 40, 50)))
    assert (labels.shape, labels.dtype) == ((3,), torch.uint8)


def test_several_threads_may_export(saved, tmp_path):
    """They wait for one another; PyTorch's tracer is for one at a time."""
    path, factory = saved(Whole)
    targets = [tmp_path / f"{number}.onnx" for number in range(3)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda to: export_model(path, to, "labels", QUIET, factory=factory), targets))
    assert all(to.is_file() for to in targets)


def test_code_that_only_the_file_names_is_not_run(saved, tmp_path):
    """A factory has to be agreed to."""
    path, factory = saved(Small)
    with pytest.raises(UserError, match=factory):
        export_model(path, tmp_path / "model.pt2", "labels", QUIET)


@pytest.mark.parametrize(
    ("to", "message"), [("model.tflite", "end in .onnx or .xml or .pt2"), ("folder.onnx", "is a folder")]
)
def test_a_bad_target_file_is_refused(trained_run, tmp_path, to, message):
    """Before anything is loaded."""
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UserError, match=message):
        export_model(trained_run, tmp_path / to, "labels", QUIET)


@pytest.mark.parametrize("flags", ["--to model.tflite", "--to model.pt2 --int8"])
def test_a_bad_target_file_is_refused_before_pytorch_is_loaded(tmp_path, flags):
    """Which takes seconds."""
    words = ["oneway", "export", "run", *flags.split()]
    program = f"import sys; sys.modules['torch'] = None; sys.argv = {words}; from oneway.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("oneway: model.")
