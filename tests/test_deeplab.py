"""Facts about DeepLab v2 and v3+, and the paper's settings for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.config.recipes import recipe
from oneway.models.deeplab import DeepLabV2, DeepLabV3Plus


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameters_of_v2_are_the_papers():
    """43.90 M with 19 classes; the paper's 43.80 M are those without the affine parameters of batch norm."""
    model = DeepLabV2(19)
    norms = sum(parameters(module) for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    resnet101, classifiers = 42_500_160, 4 * (2048 * 9 * 19 + 19)
    assert parameters(model) == resnet101 + classifiers == 43_901_068
    assert parameters(model) - norms == 43_795_724


def test_parameters_of_v3_plus_are_the_papers():
    """40.35 M with 19 classes, counted layer by layer."""
    resnet50 = 23_508_032
    pyramid = 2 * (2048 * 256 + 512) + 3 * (2048 * 9 * 256 + 512) + 5 * 256 * 256 + 512
    decoder = (256 * 48 + 96) + (304 * 9 * 256 + 512) + (256 * 9 * 256 + 512) + 256 * 19 + 19
    assert parameters(DeepLabV3Plus(19)) == resnet50 + pyramid + decoder == 40_351_667


def impulse_response(layer: nn.Module, channels: int) -> set[tuple[int, int]]:
    """Offsets from which a cell of the output receives anything."""
    x = torch.zeros(1, channels, 61, 61, requires_grad=True)
    layer(x)[0, :, 30, 30].sum().backward()
    assert x.grad is not None
    return {(int(row) - 30, int(column) - 30) for row, column in x.grad.abs().sum((0, 1)).nonzero()}


def grid(rate: int) -> set[tuple[int, int]]:
    return {(rate * i, rate * j) for i in (-1, 0, 1) for j in (-1, 0, 1)}


def test_classifiers_of_v2_look_6_12_18_and_24_cells_far():
    """Three by three cells each, and their logits are added."""
    model = DeepLabV2(3, "resnet18", width=0.125)
    assert [impulse_response(layer, 64) for layer in model.classifiers] == [grid(rate) for rate in (6, 12, 18, 24)]
    x = torch.rand(1, 3, 64, 64)
    (features,) = model.eval().encoder(model.normalise(x))
    assert features.shape == (1, 64, 8, 8)
    torch.testing.assert_close(model(x), sum(layer(features) for layer in model.classifiers))


def test_the_pyramid_of_v3_plus_looks_6_12_and_18_cells_far():
    """At stride 16, beside the cell itself and the mean of the image."""
    model = DeepLabV3Plus(3, "resnet18", width=0.125).eval()
    low_level, deepest = model.encoder(torch.rand(1, 3, 64, 96))
    assert (low_level.shape, deepest.shape) == ((1, 8, 16, 24), (1, 64, 4, 6))
    convolutions = [scale[0] for scale in model.pyramid.scales]
    assert [impulse_response(layer, 64) for layer in convolutions] == [{(0, 0)}, grid(6), grid(12), grid(18)]


SHARED = {
    # Experimental setup: "We initialize the backbones with ImageNet pre-trained parameters"; α unless stated otherwise.
    "model.weights": "imagenet",
    "model.backbone": None,
    "train.alpha": 0.5,
}
SETTINGS = {
    "cityscapes-half-deeplabv2": {
        "model.name": "deeplabv2",
        "data.resolution": "half",
        # Experimental setup: crops, scales, batches, "100 epochs or 74300 iterations when all labels are used".
        "jitter.crop": [448, 448],
        "jitter.scale": [1 / 1.5, 1.5],
        "train.batch_labelled": 4,
        "train.batch_unlabelled": 4,
        "train.iterations": 74_300,
        "train.batch_norm": "clean",
        # Table of optimiser configurations, "DLv2 ours".
        "optimiser.name": "adam",
        "optimiser.betas": [0.9, 0.99],
        "optimiser.learning_rate": 4e-4,
        "optimiser.weight_decay": 1e-4,
        "optimiser.learning_rate_pretrained": 1e-4,
        "optimiser.weight_decay_pretrained": 2.5e-5,
        # The text's; the table has the polynomial.
        "optimiser.schedule": "quarter-cosine",
    },
    "cityscapes-deeplabv3plus": {
        "model.name": "deeplabv3plus",
        "data.resolution": "full",
        # Table of hyper-parameters, "DLv3+ ours".
        "jitter.crop": [720, 720],
        "jitter.scale": [0.5, 1.5],
        "train.batch_labelled": 8,
        "train.batch_unlabelled": 8,
        "train.iterations": 92_560,
        "optimiser.schedule": "polynomial",
        # "Common setup": perturbed inputs update the statistics in full-resolution experiments.
        "train.batch_norm": "both",
        # Table of optimiser configurations, "DLv3+ ours".
        "optimiser.name": "sgd",
        "optimiser.momentum": 0.9,
        "optimiser.nesterov": False,
        "optimiser.learning_rate": 0.1,
        "optimiser.weight_decay": 0.0,
        "optimiser.learning_rate_pretrained": 0.01,
        "optimiser.weight_decay_pretrained": 1e-4,
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_the_papers(name):
    """Typed in from its text and tables one by one."""
    expected, settings = SHARED | SETTINGS[name], recipe(name).flat()
    assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize("changes", [{"batch_labelled": 1}, {"batch_unlabelled": 1}])
def test_v3_plus_wants_batches_of_two(changes):
    """The mean of one image has no deviation to normalise with; frozen statistics need none."""
    tree = {"model": {"name": "deeplabv3plus", "weights": "imagenet"}, "train": changes}
    with pytest.raises(UserError, match="batches of 2"):
        configuration.build(tree, source="test")
    configuration.build(configuration.merge(tree, {"train": {"batch_norm": "frozen"}}), source="test")


@pytest.fixture
def cityscapes(tmp_path):
    """Twelve images of 64×128 pixels in the layout of Cityscapes: a road below a sky, of many colours."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 10), ("val", 2)):
        for index in range(count):
            name = f"aachen_{index:06d}_000019"
            image = draw.integers(0, 256, (64, 128, 3), dtype=np.uint8)
            mask = np.full((64, 128), 23, np.uint8)  # sky
            mask[32:] = 7  # road
            image[32:] //= 4
            for kind, ending, pixels in (("leftImg8bit", "leftImg8bit", image), ("gtFine", "gtFine_labelIds", mask)):
                folder = tmp_path / "cityscapes" / kind / split / "aachen"
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(folder / f"{name}_{ending}.png")
    return tmp_path / "cityscapes"


@pytest.mark.parametrize(
    ("name", "method"), [("cityscapes-half-deeplabv2", "mt-phtps"), ("cityscapes-deeplabv3plus", "simple-phtps")]
)
def test_a_recipe_trains_from_files_to_a_model(cityscapes, tmp_path, name, method):
    """A few iterations of a narrow network, from PNGs of Cityscapes' layout to a model that is read again."""
    from oneway.runs import load_model
    from oneway.tools.train import train

    changes = {
        "method": method,
        "labels": "4",
        "data": {"path": cityscapes, "cache": tmp_path / "cache"},
        "jitter": {"crop": (32, 32)},
        "model": {"width": 0.125, "weights": None},
        "train": {"iterations": 3, "log_every": 1, "batch_labelled": 2, "batch_unlabelled": 2, "device": "cpu"},
    }
    config = configuration.build(configuration.merge(recipe(name).model_dump(), changes), source="test")
    out = tmp_path / "run"
    summary = train(config, out, False, Console(quiet=True))
    assert summary["iterations"] == 3
    assert summary["metric"] == "miou"
    trained = load_model(out / "model.safetensors", torch.device("cpu"))
    assert len(trained.classes) == 19
    assert trained.network(torch.rand(1, 3, 64, 128)).shape[:2] == (1, 19)
