"""Facts about factors of classes: what they do to probabilities, alike on every way to a mask, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import oneway
from oneway.cli import app
from oneway.common.errors import UnknownName, UserError
from oneway.config import Model
from oneway.data.streets import CLASSES, render
from oneway.models import build
from oneway.models.favoured import Favoured, favoured
from oneway.models.mirrored import Mirrored
from oneway.tools.export import export_model
from oneway.tools.export.formats import FORMATS
from oneway.tools.predict import Predictor, load
from oneway.tools.windows import predict_in_windows
from small_runs import QUIET, save_tiny
from test_windows import Local, sum_of_windows

CPU = torch.device("cpu")
NAMES = ("a", "b=c", "d")
FACTORS = {"b=c": 3.0, "d": 0.5}


class Constant(nn.Module):
    """The same probabilities everywhere: of cells, or of whole images."""

    def __init__(self, probabilities: list[float], whole: bool = False) -> None:
        super().__init__()
        self.logits, self.whole = torch.tensor(probabilities).log(), whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cells = self.logits[:, None, None].expand(len(x), -1, x.shape[2] // 4, x.shape[3] // 4)
        return cells.mean(dim=(2, 3)) if self.whole else cells


def predictor(network: nn.Module, classes: tuple[str, ...], factors: dict[str, float] | None, **how: bool) -> Predictor:
    colours = tuple((index, 0, 0) for index in range(len(classes)))
    given = favoured(network, classes, factors, CPU)
    return Predictor(given, classes, colours, CPU, Path("m"), how.get("classifies", False))


def multiplied(probabilities: np.ndarray, factors: list[float]) -> np.ndarray:
    """By hand, C×H×W: times the factor of each class, and normalised again."""
    products = probabilities * np.array(factors)[:, None, None]
    return products / products.sum(axis=0)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(height, width, 3), dtype=np.uint8)


def test_probabilities_are_multiplied_and_normalised():
    """0.6, 0.3 and 0.1 times 1, 3 and 0.5 are 0.6, 0.9 and 0.05, of 1.55 together."""
    plain, weighed = (predictor(Constant([0.6, 0.3, 0.1]), NAMES, factors) for factors in (None, FACTORS))
    image = noise(32, 64)
    np.testing.assert_allclose(weighed.probabilities(image)[:, 5, 7], np.array([0.6, 0.9, 0.05]) / 1.55, rtol=1e-6)
    assert (plain.predict(image).labels == 0).all()
    for tile in (None, (32, 32)):
        found = weighed.predict(image, tile)
        assert (found.labels == 1).all()
        np.testing.assert_allclose(found.confidence, 0.9 / 1.55, rtol=1e-6)
    whole = predictor(Constant([0.6, 0.3, 0.1], whole=True), NAMES, FACTORS, classifies=True)
    assert whole.classify(image) == ("b=c", pytest.approx(0.9 / 1.55))


@pytest.mark.parametrize(("factor", "threshold"), [(3.0, 0.25), (1.0, 0.5), (0.25, 0.8)])
def test_of_two_classes_a_factor_is_a_threshold(factor, threshold):
    """A class with factor f wins from the probability 1 / (1 + f) on."""
    for probability in (threshold - 0.01, threshold + 0.01):
        model = predictor(Constant([1 - probability, probability]), ("no", "yes"), {"yes": factor})
        assert (model.predict(noise(8, 8)).labels == (probability > threshold)).all()


@pytest.mark.parametrize("mirror", [False, True])
def test_factors_come_after_all_averages(trained_run, mirror):
    """A trained model's probabilities, mirrored ones too, are those without factors, times the factors."""
    factors = dict.fromkeys(CLASSES, 1.0) | {"car": 5.0, "sky": 0.2}
    alone = oneway.load(trained_run, "cpu", mirror=mirror)
    weighed = oneway.load(trained_run, "cpu", mirror=mirror, favour={"car": 5.0, "sky": 0.2})
    assert (weighed.mirror, weighed.favour) == (mirror, {"car": 5.0, "sky": 0.2})
    image = render(0, 0, 64, 128)[0]
    expected = multiplied(alone.probabilities(image).astype(np.float64), list(factors.values()))
    np.testing.assert_allclose(weighed.probabilities(image), expected, atol=1e-6)
    found = weighed.predict(image)
    assert (found.labels == expected.argmax(axis=0)).mean() > 0.9999
    np.testing.assert_allclose(found.confidence, expected.max(axis=0), atol=1e-6)
    assert (found.labels != alone.predict(image).labels).any()


@pytest.fixture(scope="module")
def swiftnet() -> nn.Module:
    """Random weights and statistics of batches, whose classes follow context and detail."""
    network = build(Model(name="swiftnet", width=0.125), 5, seed=0)
    with torch.no_grad():
        for _ in range(20):
            network.train()(torch.tensor(noise(192, 256)).permute(2, 0, 1)[None] / 255)
    return network.eval()


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("size", [(250, 320), (256, 384)])
def test_tiles_have_the_factors_of_one_pass(swiftnet, mirror, size):
    """A network that is told the context of a tile is called by its parts, and its tiles change as the whole does."""
    network = Mirrored(swiftnet) if mirror else swiftnet
    image = (noise(*size) * np.linspace(0, 1, size[1])[None, :, None]).astype(np.uint8)
    alone = predictor(network, tuple("vwxyz"), None)
    rare = int(np.bincount(alone.predict(image).labels.ravel(), minlength=5).argmin())
    weighed = predictor(network, tuple("vwxyz"), {"vwxyz"[rare]: 2.5})
    whole, tiled, before = weighed.predict(image), weighed.predict(image, (128, 128)), alone.predict(image, (128, 128))
    assert (before.labels == rare).mean() < (tiled.labels == rare).mean() - 0.02
    assert (tiled.labels == whole.labels).mean() > (before.labels == alone.predict(image).labels).mean() - 0.005
    likely = {"vwxyz"[rare]: 1e12}
    everywhere = predictor(network, tuple("vwxyz"), likely).predict(image, (128, 128))
    assert (everywhere.labels == rare).all()


def test_windows_are_averaged_before():
    """By a literal loop in double precision: the sums of probabilities times the factors."""
    model, x = Local(), torch.rand(2, 3, 96, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    factors = torch.tensor([1.0, 4, 0.25, 2, 1])
    with torch.no_grad():
        total = sum_of_windows(model, x, 48)
    given = Favoured(model, factors.log()[:, None, None].double())
    labels = predict_in_windows(given, x, (48, 48))
    assert torch.equal(labels, (total * factors[:, None, None]).argmax(dim=1))
    assert (labels != total.argmax(dim=1)).any()


@pytest.mark.parametrize("suffix", [".onnx", ".xml", ".pt2"])
def test_files_have_the_factors_in_them(tmp_path, suffix):
    """Their runtimes give what the model gives; they and their card say so, and the model file stays as it was."""
    if suffix != ".pt2":
        pytest.importorskip({".onnx": "onnxruntime", ".xml": "openvino"}[suffix])
        pytest.importorskip("onnxscript")
    source = tmp_path / "model.safetensors"
    factory = save_tiny(source, NAMES)
    before, path = source.read_bytes(), tmp_path / f"model{suffix}"
    export_model(source, path, "labels", QUIET, factory=factory, favour=FACTORS)
    alone, weighed = (load(source, "cpu", factory, favour=factors) for factors in (None, FACTORS))
    image = noise(61, 94)
    labels = FORMATS[suffix].open(path).result(torch.from_numpy(image)[None])[0].numpy()
    expected = multiplied(alone.probabilities(image), [1, 3, 0.5]).argmax(axis=0)
    assert (labels == expected).mean() > 0.999
    assert (labels == weighed.predict(image).labels).mean() > 0.999
    assert (labels != alone.predict(image).labels).mean() > 0.05
    assert "| favoured classes | b=c × 3, d × 0.5 (" in path.with_name(f"{path.name}.md").read_text(encoding="utf-8")
    assert source.read_bytes() == before
    if suffix == ".onnx":
        import onnxruntime

        found = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
        assert json.loads(found["favour"]) == FACTORS


def test_a_model_that_reduces_images_is_exported_with_factors(tmp_path):
    """The reduction comes before the network, and the factors behind it."""
    pytest.importorskip("onnxruntime")
    source = tmp_path / "model.safetensors"
    factory = save_tiny(source, NAMES, reduction=2)
    export_model(source, tmp_path / "model.onnx", "labels", QUIET, factory=factory, favour={"d": 1e6})
    opened = FORMATS[".onnx"].open(tmp_path / "model.onnx")
    assert (opened.result(torch.from_numpy(noise(96, 128))[None]) == 2).all()


def test_without_factors_nothing_is_around_the_network(trained_run):
    """The graph of calls is that of before, to the bit."""
    for factors in (None, {}):
        assert type(load(trained_run, "cpu", favour=factors).network).__name__ == "SwiftNet"


def call(*words: object) -> None:
    app([str(word) for word in words], result_action="return_value")


def test_eval_shows_what_a_factor_trades(trained_run, capsys):
    """Recall of a class goes from none to all of it; title and JSON name the factors."""
    call("eval", trained_run, "--json")
    plain = json.loads(capsys.readouterr().out)
    assert "favour" not in plain
    doubtful = min(plain["recall"], key=lambda name: abs((plain["recall"][name] or 0) - 50))
    recall = {}
    for factor in ("1e-20", "1", "1e20"):
        call("eval", trained_run, "--json", "--favour", f"{doubtful}={factor}")
        found = json.loads(capsys.readouterr().out)
        assert found["favour"] == {doubtful: float(factor)}
        recall[factor] = found["recall"][doubtful]
    assert recall == {"1e-20": 0, "1": plain["recall"][doubtful], "1e20": 100}
    assert 0 < recall["1"] < 100
    call("eval", trained_run, "--favour", "sky=4", "--favour", "car=.5", "--mirror", "--window", "32", "64")
    assert "probabilities of sky × 4, car × 0.5" in capsys.readouterr().out


def test_predict_writes_masks_with_factors_and_says_so(trained_run, tmp_path):
    """Masks change, and the index of the results has the factors, without which there is no such line."""
    Image.fromarray(render(0, 0, 64, 128)[0]).save(tmp_path / "photo.png")
    for name, flags in {"plain": [], "sky": ["--favour", "sky=1e20"]}.items():
        with pytest.raises(SystemExit) as ended:
            call("predict", trained_run, *flags, tmp_path / "photo.png", "--out", tmp_path / name, "--as", "indices")
        assert ended.value.code == 0
    index = {name: json.loads((tmp_path / name / "predictions.json").read_text()) for name in ("plain", "sky")}
    assert ("favour" in index["plain"], index["sky"]["favour"]) == (False, {"sky": 1e20})
    assert (np.asarray(Image.open(tmp_path / "sky/masks/photo.png")) == CLASSES.index("sky")).all()
    assert (np.asarray(Image.open(tmp_path / "plain/masks/photo.png")) != CLASSES.index("sky")).any()


@pytest.mark.parametrize("verb", ["predict", "eval", "export"])
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["skye=2"], UnknownName, r"Unknown class to favour 'skye'\. Did you mean 'sky'\? Known: sky, building"),
        (["sky=0"], UserError, r"favour sky=0.0: .* by a number above 0"),
        (["sky=-1"], UserError, r"favour sky=-1.0: "),
        (["sky=nan"], UserError, r"favour sky=nan: "),
        (["sky=inf"], UserError, r"favour sky=inf: "),
        (["sky"], UserError, r"--favour sky: give each class once, with its factor: --favour CLASS=3"),
        (["sky=much"], UserError, r"--favour sky=much: give each class once"),
        (["sky=2", "sky=3"], UserError, r"--favour sky=3: give each class once"),
    ],
)
def test_what_is_no_factor_of_a_class_is_refused(trained_run, tmp_path, monkeypatch, verb, given, error, message):
    """Before data are read, a network is traced or anything is written."""
    monkeypatch.setattr("oneway.tools.evaluate_run.read_split", lambda *_, **__: pytest.fail("read the data"))
    Image.fromarray(render(0, 0, 64, 128)[0]).save(tmp_path / "photo.png")
    words = {
        "predict": ["predict", trained_run, tmp_path / "photo.png", "--out", tmp_path / "out"],
        "eval": ["eval", trained_run],
        "export": ["export", trained_run, "--to", tmp_path / "out.pt2"],
    }
    with pytest.raises(error, match=message):
        call(*words[verb], *(word for one in given for word in ("--favour", one)))
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


def test_in_python_a_factor_is_a_number(trained_run):
    """A text would fail somewhere inside."""
    with pytest.raises(UserError, match=r"favour car=3: the probability of a class is multiplied by a number above 0"):
        oneway.load(trained_run, "cpu", favour={"car": "3"})  # type: ignore[dict-item]
    assert json.dumps(oneway.load(trained_run, "cpu", favour={"car": np.float32(3)}).favour) == '{"car": 3.0}'
