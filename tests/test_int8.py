"""Facts about INT8 files: what they compute with, what they lose, and that a user hears of it before they exist."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn
from torchmetrics.functional.classification import multiclass_jaccard_index

from oneway.common.errors import UserError
from oneway.config import Model
from oneway.data import load as load_data
from oneway.data.streets import CLASSES
from oneway.runs import TrainedModel, open_run, save_model
from oneway.tools.bench import Options, bench, runtimes
from oneway.tools.evaluate_run import evaluate_run
from oneway.tools.export import Int8, export_model
from oneway.tools.export.agreement import compare
from oneway.tools.export.formats import FORMATS
from oneway.tools.export.int8 import Cost, read_images, refuse_loss
from oneway.tools.predict import load
from processes import forked
from small_runs import QUIET

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

ANYTHING = Int8(most_lost=100)


class Residual(nn.Module):
    """All that a larger network has that computes with bytes, exported in a moment."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.end = nn.Conv2d(32, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(x).relu(), 2)
        y = (x + self.block(x)).relu()
        z = F.interpolate(F.adaptive_avg_pool2d(y, 4), y.shape[-2:], mode="bilinear")
        return self.end(torch.cat((y, z), dim=1))


FACTORY = "own_int8:Residual"


@pytest.fixture(scope="module")
def run(trained_run, tmp_path_factory) -> Iterator[Path]:
    """A run with that network as its model."""
    folder = tmp_path_factory.mktemp("int8") / "run"
    shutil.copytree(trained_run, folder)
    torch.manual_seed(0)
    (folder / "model.safetensors").unlink()
    save_model(folder / "model.safetensors", TrainedModel(Residual(len(CLASSES)), CLASSES, ()), Model(factory=FACTORY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "own_int8", sys.modules[__name__])
        yield folder


@pytest.fixture(scope="module")
def exported(run) -> tuple[Path, str]:
    """The run as an INT8 file, and what was said meanwhile."""
    path, told = run.parent / "model.onnx", io.StringIO()
    export_model(run, path, "labels", Console(file=told, width=500), factory=FACTORY, int8=ANYTHING)
    return path, told.getvalue()


def miou(labels: np.ndarray, run: Path) -> float:
    """Of predictions for the validation images, by torchmetrics."""
    samples = load_data(open_run(run).config.data).read("val")
    truth = np.stack([samples.label_map(index) for index in range(len(samples))])
    counted = truth != 255
    found, expected = (torch.from_numpy(values[counted]).long() for values in (labels, truth))
    per_class = multiclass_jaccard_index(found, expected, len(CLASSES), average="none")
    return 100 * float(per_class[torch.cat((found, expected)).unique()].mean())


def test_the_figures_are_those_of_the_validation_set(exported, run):
    """Before: what `oneway eval` says. After: by torchmetrics, from what ONNX Runtime alone makes of the file."""
    path, told = exported
    session = ort.InferenceSession(path)
    figures = json.loads(session.get_modelmeta().custom_metadata_map["int8"])
    samples = load_data(open_run(run).config.data).read("val")
    images = np.stack([samples.image(index) for index in range(len(samples))])
    assert figures["before"] == pytest.approx(evaluate_run(run, "val", None, QUIET, factory=FACTORY)["value"], abs=0.02)
    assert figures["after"] == pytest.approx(miou(session.run(None, {"images": images})[0], run), abs=0.01)
    assert figures["validation_images"] == len(samples)
    assert figures["calibration"] == "12 images without labels"
    words = f"INT8: {figures['after']:.2f} % mIoU on {len(samples)} validation images, {figures['before']:.2f} % before"
    assert words in told
    card = path.with_name("model.onnx.md").read_text(encoding="utf-8")
    assert f"{figures['after']:.2f} % mIoU" in card
    assert "| ONNX Runtime INT8 |" in card


def test_files_with_factors_of_classes_are_judged_with_them(run, tmp_path):
    """Both figures are of them, and they cost no operation: the last convolution has them in its bias."""
    path, factors = tmp_path / "model.onnx", {CLASSES[2]: 2.0}
    export_model(run, path, "labels", QUIET, factory=FACTORY, int8=ANYTHING, favour=factors)
    model = onnx.load(path)
    found = {entry.key: entry.value for entry in model.metadata_props}
    expected, plain = (
        evaluate_run(run, "val", None, QUIET, factory=FACTORY, favour=given) for given in (factors, None)
    )
    assert json.loads(found["int8"])["before"] == pytest.approx(expected["value"], abs=0.01)
    assert expected["value"] != pytest.approx(plain["value"], abs=0.1)
    last = [node.op_type for node in model.graph.node if node.op_type in ("Conv", "Add", "Resize")][-2:]
    assert (last, json.loads(found["favour"])) == (["Conv", "Resize"], factors)


def test_convolutions_compute_with_bytes(exported):
    """Weights are int8 with a scale for each output channel; classes and colours are still in the file."""
    model = onnx.load(exported[0])
    made_by = {name: node for node in model.graph.node for name in node.output}
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 3
    for node in convolutions:
        dequantise = made_by[node.input[1]]
        assert dequantise.op_type == "DequantizeLinear"
        stored, scale = (weights[name] for name in dequantise.input[:2])
        assert stored.data_type == onnx.TensorProto.INT8
        assert list(scale.dims) == [stored.dims[0]]
        assert made_by[node.input[0]].op_type == "DequantizeLinear"
    assert json.loads({entry.key: entry.value for entry in model.metadata_props}["classes"]) == list(CLASSES)


def test_openvino_computes_what_onnx_runtime_computes(exported, tmp_path):
    """From the same INT8 graph; roundings differ."""
    pytest.importorskip("openvino")
    FORMATS[".xml"].save(onnx.load(exported[0]), tmp_path / "model.xml", {})
    images = torch.randint(256, (2, 97, 131, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found, expected = (FORMATS[file.suffix].open(file).logits(images) for file in (tmp_path / "model.xml", exported[0]))
    assert (found - expected).norm() < 0.05 * expected.norm()
    assert (found.argmax(dim=1) == expected.argmax(dim=1)).float().mean() > 0.95


def test_too_great_a_loss_leaves_nothing_behind(run, tmp_path):
    """Nor does it take away the files that were there."""
    pytest.importorskip("openvino")
    for name in ("model.xml", "model.bin"):
        (tmp_path / name).write_text("an earlier export")
    with pytest.raises(UserError, match=r"model.xml: not written. INT8 loses -?\d+\.\d\d points of mIoU"):
        export_model(run, tmp_path / "model.xml", "labels", QUIET, factory=FACTORY, int8=Int8(most_lost=-100))
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == dict.fromkeys(
        ("model.xml", "model.bin"), "an earlier export"
    )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_swiftnet_keeps_nearly_all_of_its_classes(trained_run, tmp_path, suffix):
    """With its pyramid, whose grids follow the size of the image."""
    if suffix == ".xml":
        pytest.importorskip("openvino")
    export_model(trained_run, tmp_path / f"model{suffix}", "labels", QUIET, int8=ANYTHING)
    found = compare(load(trained_run, "cpu").network, FORMATS[suffix].open(tmp_path / f"model{suffix}"))
    assert found.same_class > 0.9


def test_the_refusal_names_both_figures_and_the_way_out():
    """The loss that it proposes to accept is one that would be accepted."""
    cost = Cost("miou", 61.25, 59.01, 84, "32 images without labels")
    with pytest.raises(UserError) as caught:
        refuse_loss(cost, 1.0)
    assert "2.24 points of mIoU" in str(caught.value)
    assert "61.25 % before, 59.01 % after" in str(caught.value)
    assert "--int8-loss 2.3" in str(caught.value)
    refuse_loss(cost, 2.3)


def test_without_unlabelled_images_those_that_taught_calibrate(two_runs, monkeypatch):
    """A run whose images are all labelled has no others."""
    run = open_run(two_runs[0])
    names = load_data(run.config.data).read("train").names
    images = read_images(two_runs[0], load(two_runs[0], "cpu"), ANYTHING, QUIET)
    assert (len(images.calibration), images.kind) == (len(names) - len(run.split.labelled), "without labels")
    everything = type(run.split)(names, names)
    monkeypatch.setattr(type(run), "split", everything)
    images = read_images(two_runs[0], load(two_runs[0], "cpu"), ANYTHING, QUIET)
    assert (len(images.calibration), images.kind) == (len(names), "that taught")


def test_few_validation_images_are_warned_of(two_runs, monkeypatch):
    """One more would do."""
    count = len(load_data(open_run(two_runs[0]).config.data).read("val"))
    for enough, warned in ((count, False), (count + 1, True)):
        monkeypatch.setattr("oneway.tools.export.int8.FEW_IMAGES", enough)
        told = io.StringIO()
        read_images(two_runs[0], load(two_runs[0], "cpu"), ANYTHING, Console(file=told, width=200))
        assert (f"Note: {count} validation images alone will tell" in told.getvalue()) == warned


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--to model.pt2 --int8", "model.pt2: --int8 is for .onnx and .xml files"),
        ("--to model.onnx --int8-loss 2", "go with --int8"),
        ("--to model.onnx --int8 --int8-loss -1", "--int8-loss"),
        ("--to taken.xml", "taken.bin: is there already"),
        ("--to model.onnx --int8", "Give the run folder"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(trained_run, tmp_path, flags, message):
    """By the command itself."""
    (tmp_path / "taken.bin").touch()
    done = forked("export", str(trained_run / "model.safetensors"), *flags.split(), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in " ".join(done.stderr.split())
    assert [file.name for file in tmp_path.iterdir()] == ["taken.bin"]


def test_runtimes_are_compared_in_one_run(monkeypatch, tmp_path):
    """Those that are installed; what is not is said. All give the classes that PyTorch gives."""
    monkeypatch.setattr(runtimes.models, "build", lambda config, classes, seed: Residual(classes))
    monkeypatch.setattr(runtimes, "TIMED_SIZES", {False: (64, 128)})
    monkeypatch.setitem(sys.modules, "openvino", None)  # as if it were not installed
    console = Console(file=io.StringIO(), width=200)
    options = Options(
        torch.device("cpu"), cases=("swiftnet-rn18",), runtimes=("onnxruntime", "onnxruntime-int8", "openvino")
    )
    bench("infer", options, console, tmp_path / "infer.json")
    (row,) = json.loads((tmp_path / "infer.json").read_text())["results"]
    assert set(row["images_per_second"]) == {"pytorch", "onnxruntime", "onnxruntime-int8"}
    assert row["same_class"]["onnxruntime"] > 0.999
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "openvino: left out. Export to .xml needs openvino" in told
    assert "pip install 'oneway[openvino]'" in told


@pytest.mark.parametrize(
    ("name", "asked", "message"), [("step", "pytorch", "bench infer"), ("infer", "tflite", "tflite")]
)
def test_unknown_runtimes_are_refused(name, asked, message):
    """And benchmarks that know none."""
    with pytest.raises(UserError, match=message):
        bench(name, Options(torch.device("cpu"), runtimes=(asked,)), QUIET)
