"""Facts about encoders: what timm has to offer trains, and what does not fit is refused with a way out."""

from __future__ import annotations

import json

import pytest
import timm
import torch

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.config import Model
from oneway.models import build
from oneway.models.encoder import FeatureEncoder, pyramid_encoder
from oneway.runs import load_model
from oneway.tools.train import train
from small_runs import QUIET, small_streets

FAMILIES = [
    "mobilenetv4_conv_small_035",
    "efficientnet_lite0",
    "regnety_002",
    "convnext_atto",  # rounds sizes down, normalises layers
    "mambaout_femto",  # has its channels last
    "pvt_v2_b0",  # a transformer
]


@pytest.mark.parametrize(
    "backbone",
    [
        pytest.param(family, marks=[] if family in ("mobilenetv4_conv_small_035", "pvt_v2_b0") else pytest.mark.slow)
        for family in FAMILIES
    ],
)
def test_backbones_of_other_families_train(backbone, tmp_path):
    """SwiftNet on each of them: two iterations on tiny street scenes, and the model that is kept is read again."""
    config = small_streets(model={"backbone": backbone, "width": 1}, train={"iterations": 2, "log_every": 1})
    train(config, tmp_path / "run", resume=False, console=QUIET)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines if "consistency" in line] == [1, 2]
    network = load_model(tmp_path / "run" / "model.safetensors", torch.device("cpu")).network
    assert network(torch.rand(1, 3, 64, 64)).isfinite().all()


@pytest.mark.parametrize("backbone", FAMILIES)
def test_features_are_timms_own(backbone):
    """At strides 4, 8, 16 and 32, finest first, channels in their usual place."""
    encoder = pyramid_encoder(backbone).eval()
    x = torch.randn(1, 3, 64, 96)
    with torch.no_grad():
        features, reference = encoder(x), encoder.net(x)[-4:]
    assert [tuple(feature.shape[1:]) for feature in features] == [
        (channels, 64 // stride, 96 // stride)
        for channels, stride in zip(encoder.channels, (4, 8, 16, 32), strict=True)
    ]
    for ours, timms in zip(features, reference, strict=True):
        assert torch.equal(ours.flatten().sort().values, timms.flatten().sort().values)


@pytest.mark.parametrize("backbone", FAMILIES)
def test_gradient_reaches_every_parameter(backbone):
    """No layer of the backbone is left over behind the deepest features."""
    model = build(Model(backbone=backbone), classes=5, seed=0)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    model(torch.rand(2, 3, 64, 64)).square().mean().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_nothing_is_left_to_chance():
    """Focal networks of timm skip layers at random by default; here an input has one answer, in training too."""
    model, x = build(Model(backbone="focalnet_tiny_srf"), classes=2, seed=0).train(), torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(model(x), model(x))


def test_normalisation_is_that_of_the_published_weights():
    """Some were trained on images in [−1, 1]."""
    for backbone, mean in (("resnet18", 0.485), ("resnetv2_50", 0.5)):
        model = build(Model(backbone=backbone), classes=2, seed=0)
        assert model.mean[0].item() == pytest.approx(mean)


@pytest.mark.parametrize(
    "backbone", ["mobilenetv4_conv_small_035", "efficientnet_lite0", "regnety_002", "convnext_atto"]
)
def test_deeplab_dilates_what_can_be_dilated(backbone):
    """Features at stride 16 have the channels of timm's deepest, and no cell is skipped."""
    encoder = FeatureEncoder(backbone, strides=(4, 16)).eval()
    assert encoder.channels[1] == timm.create_model(backbone, features_only=True).feature_info.channels()[-1]
    assert encoder(torch.rand(1, 3, 64, 96))[1].shape[2:] == (4, 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backbone": "vit_tiny_patch16_224"}, "strides 16, 16 and 16.*needs 4, 8, 16 and 32.*mobilenetv4"),
        ({"backbone": "swin_tiny_patch4_window7_224"}, "does not take images of 77×101"),
        ({"backbone": "hrnet_w18_small"}, "does not take images of 77×101"),
        ({"backbone": "inception_v3"}, "192×15×21 features of 77×101 pixels, which is not stride 4"),
        ({"backbone": "coat_lite_tiny"}, "gives no features.*resnet18"),
        ({"backbone": "resnet50.nosuch"}, "Invalid pretrained tag"),
        ({"backbone": "mobilnetv4_conv_smal"}, "no such model. Did you mean mobilenetv4_conv_small,"),
        ({"backbone": "hf-hub:someone/something"}, "no such model. What works"),
        ({"backbone": "densenet121", "name": "deeplabv3plus"}, "cannot be dilated.*resnet18"),
        ({"backbone": "hgnetv2_b0", "name": "deeplabv2"}, "strides 4, 8, 16 and 32, and the decoder needs 8"),
    ],
    ids=str,
)
def test_what_cannot_be_an_encoder_is_refused_with_a_way_out(settings, message):
    """Strides, sizes, dilation, and names that nobody knows; a hub's names are not looked up anywhere."""
    with pytest.raises(UserError, match=message):
        build(Model(**settings), classes=5, seed=0)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"model": {"backbone": "convnext_tiny", "width": 0.5}},
            "convnext_tiny comes in one width; use --model.width 1",
        ),
        ({"model": {"backbone": "resnetv2_50", "width": 0.5}}, "one width"),
        (
            {"data": {"name": "cifar10"}, "model": {"name": "wrn-28-2", "backbone": "resnet18"}},
            "wrn-28-2 has none; use --model.backbone none",
        ),
        ({"data": {"name": "cifar10"}, "model": {"name": "wrn-28-2", "width": 0.5}}, "one width"),
        ({"train": {"batch_norm": "frozen"}}, "statistics of model.weights, and there are none"),
    ],
    ids=str,
)
def test_settings_without_effect_are_refused(tree, message):
    """Width is for resnets, backbones are for networks with an encoder, frozen statistics must come from somewhere."""
    with pytest.raises(UserError, match=message):
        configuration.build(tree, source="test")


@pytest.mark.parametrize("backbone", [None, "resnet18", "resnet34", "resnet50d", "resnet50.tv_in1k"])
def test_resnets_come_in_any_width(backbone):
    """A quarter of the channels, in every stage."""
    config = configuration.build({"model": {"backbone": backbone, "width": 0.25}}, source="test")
    whole, narrow = (pyramid_encoder(config.model.backbone or "resnet18", width) for width in (1.0, 0.25))
    assert [4 * channels for channels in narrow.channels] == list(whole.channels)
