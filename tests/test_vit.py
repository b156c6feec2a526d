"""Facts about plain vision transformers as encoders: timm's features, aligned logits, and weights of other grids."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from timm.layers import resample_abs_pos_embed
from timm.optim import param_groups_layer_decay
from torch import nn

import oneway
from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.config import Model, Optimiser
from oneway.engine.optim import optimiser_for, set_learning_rate
from oneway.models import build
from oneway.models.features import classifier_of, feature_channels, scaled_features
from oneway.models.fuse import FusedNorm, for_prediction, fuse
from oneway.models.precision import Conv, Linear
from oneway.models.sampling import cubic, linear, sample
from oneway.models.vit import TokenEncoder, ViT, resampled
from oneway.runs import imagenet, load_model
from oneway.runs.weights import load_weights, read
from oneway.tools.export.agreement import compare, refuse_difference
from oneway.tools.export.formats import FORMATS
from oneway.tools.predict import load
from small_runs import small_streets

TINY = "test_vit"
SMALL_DINO = "vit_small_patch14_dinov2"
CPU = torch.device("cpu")


def tiny_config(**changes: object) -> configuration.Config:
    """A run of street scenes with timm's vision transformer for tests."""
    model = {"name": "vit", "backbone": TINY, "width": 1}
    return small_streets(**{"model": model, "optimiser": {"name": "adamw", "layer_decay": 0.8}, **changes})


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory) -> oneway.Run:
    """Two iterations."""
    config = tiny_config(train={"iterations": 2, "log_every": 1})
    return oneway.fit(config, tmp_path_factory.mktemp("vit") / "run", quiet=True)


@pytest.mark.parametrize(
    "backbone",
    [
        TINY,
        "vit_small_patch14_reg4_dinov2",  # registers; its positions leave out what stands before the patches
        "vit_small_patch16_dinov3",  # turns positions instead of adding them
        "vit_xsmall_patch16_clip_224",  # normalises before the first block
    ],
)
def test_features_are_timms_own(backbone):
    """Four blocks of an image whose sides no patch divides, against timm's padding and resampled positions."""
    torch.manual_seed(0)
    encoder = TokenEncoder(backbone).eval()
    reference = timm.create_model(backbone, dynamic_img_size=True, dynamic_img_pad=True).eval()
    missing, surplus = reference.load_state_dict(encoder.net.state_dict(), strict=False)
    assert surplus == []
    assert all(name.startswith("head.") for name in missing)
    x, depth = torch.randn(2, 3, 61, 90), len(reference.blocks)
    with torch.no_grad():
        found = encoder(x)
        wanted = reference.forward_intermediates(x, indices=list(encoder.chosen), norm=True, intermediates_only=True)
    assert len(set(encoder.chosen)) == 4
    assert encoder.chosen[-1] == depth - 1
    for ours, timms in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, timms, rtol=1e-4, atol=1e-5)


def test_a_small_dinov2_has_timms_parameters_and_all_learn():
    """22,056,192 of them, a decoder of 3 % besides, and the gradient of one image reaches each."""
    model = build(Model(name="vit"), classes=19, seed=0).eval()  # a batch norm would take back what moves all pixels
    timms = sum(parameter.numel() for parameter in timm.create_model(SMALL_DINO, num_classes=0).parameters())
    assert sum(parameter.numel() for parameter in model.encoder.parameters()) == timms == 22_056_192
    assert sum(parameter.numel() for parameter in model.parameters()) == 22_698_643
    logits = model(torch.rand(2, 3, 45, 71))
    assert logits.shape == (2, 19, 12, 18)
    logits.square().mean().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize(("old", "new"), [((37, 37), (5, 9)), ((10, 10), (10, 10)), ((4, 4), (9, 7))])
def test_positions_are_resampled_as_timm_does_it(old, new):
    """Bicubic and antialiased, up and down; the same grid stays as it is."""
    places = torch.randn(1, 1 + old[0] * old[1], 8, generator=torch.Generator().manual_seed(0))
    wanted = resample_abs_pos_embed(places, list(new), list(old), num_prefix_tokens=1)
    torch.testing.assert_close(resampled(places, old, new, prefix=1), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kernel", "mode"), [(linear, "bilinear"), (cubic, "bicubic")])
def test_sampling_is_interpolation(kernel, mode):
    """Over the whole grid it equals PyTorch's with antialias; gradients too."""
    x = torch.randn(2, 3, 7, 5, dtype=torch.float64).requires_grad_()
    extent = (torch.tensor(7.0, dtype=torch.float64), torch.tensor(5.0, dtype=torch.float64))
    for size in ((3, 11), (7, 2)):
        found, wanted = sample(x, size, extent, kernel), F.interpolate(x, size, mode=mode, antialias=True)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, wanted)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("size", [(64, 96), (61, 93), (50, 49)])
def test_logits_are_aligned_with_the_pixels(size):
    """What lies over the padded patches is cut off where the picture ends, not squeezed into it.

    Tokens that hold where their patch is come back, between the outer centres, as places in the picture.
    """
    model = ViT(classes=2, backbone=TINY)
    rows, columns = (-(-side // 16) for side in size)
    down, right = torch.meshgrid(*((torch.arange(n) + 0.5) * 16 for n in (rows, columns)), indexing="ij")
    found = model._over_picture(torch.stack((down, right))[None], *size, stride=4)[0]
    for axis, side in enumerate(size):
        cells = -(-side // 4)
        wanted = (torch.arange(cells) + 0.5) * side / cells
        inner = (wanted >= 8) & (wanted <= 16 * (rows, columns)[axis] - 8)
        along = found[axis].mean(dim=1 - axis)
        torch.testing.assert_close(along[inner], wanted[inner])


def test_norms_of_layers_are_left_alone_where_norms_are_fused():
    """Joined are the decoder's batch norms; what is computed stays the same, also with the types of a GPU."""
    model = build(Model(name="vit", backbone=TINY), classes=3, seed=0).eval()
    x = torch.rand(2, 3, 40, 50)
    with torch.no_grad():
        wanted = model(x)
        kinds = {name: type(module) for name, module in model.named_modules()}
        torch.testing.assert_close(fuse(model)(x), wanted)
    changed = {name for name, module in model.named_modules() if type(module) is not kinds[name]}
    assert changed
    layers = {name for name in changed if isinstance(model.get_submodule(name), Conv | Linear)}
    assert all(name.startswith(("blends.", "head.")) for name in changed - layers)
    assert sum(isinstance(module, FusedNorm) for module in model.modules()) == 4
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = for_prediction(model)(x)
    assert (found - wanted).abs().max() < 0.05 * wanted.abs().max()


def test_methods_find_features_and_classifier():
    """Those that drop channels between encoder and decoder, and those that compare what the classifier receives."""
    model = build(Model(name="vit", backbone=TINY), classes=3, seed=0).eval()
    assert feature_channels(model) == (64,) * 4
    assert classifier_of(model).out_channels == 3
    x = torch.rand(1, 3, 32, 32)
    with torch.no_grad(), scaled_features(model, torch.zeros(1, 256)):
        dropped = model(x)
    torch.testing.assert_close(dropped, dropped[..., :1, :1].expand_as(dropped), atol=0.2, rtol=0)


def test_colours_are_normalised_as_the_weights_want_it():
    """CLIP has means of its own."""
    mean = build(Model(name="vit", backbone="vit_xsmall_patch16_clip_224"), classes=2, seed=0).mean
    assert mean.flatten().tolist() == pytest.approx([0.48145466, 0.4578275, 0.40821073])


@pytest.mark.parametrize("pixels", [160, 240])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_weights_come_from_a_state_dict_of_timms(pixels, prefix, tmp_path):
    """All tensors are used; positions of another grid are resampled by timm's function."""
    torch.manual_seed(1)
    source = timm.create_model(TINY, num_classes=0, img_size=pixels).state_dict()
    safetensors.torch.save_file({prefix + name: t for name, t in source.items()}, tmp_path / "w.safetensors")
    model = build(Model(name="vit", backbone=TINY), classes=3, seed=0)
    loaded = load_weights(model, read(str(tmp_path / "w.safetensors")))
    assert loaded.remarks[0].endswith(f"fills {len(source)} of the encoder's {len(source)} tensors.")
    assert {id(p) for p in loaded.parameters} == {id(p) for p in model.encoder.parameters()}
    wanted = resample_abs_pos_embed(source.pop("pos_embed"), [10, 10], num_prefix_tokens=1)
    assert torch.equal(model.encoder.net.pos_embed, wanted)
    assert all(torch.equal(model.encoder.net.state_dict()[name], tensor) for name, tensor in source.items())


def test_positions_of_no_grid_are_refused(tmp_path):
    """Of 12 patches nobody knows where they were."""
    source = timm.create_model(TINY, num_classes=0).state_dict()
    source["pos_embed"] = torch.zeros(1, 13, 64)
    torch.save(source, tmp_path / "w.pth")
    with pytest.raises(UserError, match="pos_embed has shape 1×13×64 there and 1×101×64 here"):
        load_weights(build(Model(name="vit", backbone=TINY), classes=3, seed=0), read(str(tmp_path / "w.pth")))


def test_rates_fall_from_layer_to_layer_as_timms_do():
    """The factors of timm's own parameter groups; the decoder learns at the whole rate, and comes first."""
    model = build(Model(name="vit", backbone=TINY), classes=3, seed=0)
    settings = Optimiser(name="adamw", learning_rate=1e-2, learning_rate_pretrained=1e-3, layer_decay=0.5)
    optimiser = optimiser_for([model], settings, list(model.encoder.parameters()))
    assert isinstance(optimiser, torch.optim.AdamW)
    found = {id(p): group["initial_lr"] for group in optimiser.param_groups for p in group["params"]}
    assert len(found) == len(list(model.parameters()))
    timms = timm.create_model(TINY)
    scales = {
        id(parameter): group["lr_scale"]
        for group in param_groups_layer_decay(timms, layer_decay=0.5)
        for parameter in group["params"]
    }
    parameters = dict(timms.named_parameters())
    for name, parameter in model.encoder.net.named_parameters():
        assert found[id(parameter)] == pytest.approx(1e-3 * scales[id(parameters[name])]), name
    assert {found[id(p)] for name, p in model.named_parameters() if not name.startswith("encoder.")} == {1e-2}
    assert set_learning_rate(optimiser, "constant", 0, 1) == 1e-2
    assert len(optimiser_for([model], Optimiser(), []).param_groups) == 1


def test_decay_of_weights_is_decoupled():
    """AdamW shrinks a weight without a gradient by rate × decay; Adam would normalise that away."""
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    optimiser = optimiser_for([layer], Optimiser(name="adamw", learning_rate=0.1, weight_decay=0.5))
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    torch.testing.assert_close(layer.weight.detach(), before * 0.95)


def test_a_run_is_resumed_to_the_bit(tmp_path):
    """Half, then the other half: the weights, and AdamW's moments of every layer."""
    config = tiny_config(train={"checkpoint_every": 2})
    whole, halved = oneway.fit(config, tmp_path / "whole", quiet=True).path, tmp_path / "halved"
    oneway.fit(config, halved, quiet=True)
    for path in (*halved.glob("checkpoint/00000004*"), halved / "summary.json", halved / "model.safetensors"):
        path.unlink()
    oneway.fit(config, halved, resume=True, quiet=True)
    wanted, found = (load_file(sorted(run.glob("checkpoint/*.safetensors"))[-1]) for run in (whole, halved))
    assert any(name.startswith("optimiser.exp_avg_sq.encoder.net.blocks.5.") for name in wanted)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_an_image_of_any_size_is_predicted(tiny_run):
    """Sides that no patch divides, and one smaller than a patch."""
    assert [line["iteration"] for line in tiny_run.metrics() if "consistency" in line] == [1, 2]
    model = load(tiny_run.path, "cpu")
    for height, width in ((37, 53), (9, 70)):
        picture = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
        assert model.predict(picture).labels.shape == (height, width)


def test_it_teaches_a_small_network(tiny_run, tmp_path):
    """Its predictions of unlabelled images are the targets of a SwiftNet."""
    config = small_streets(method="mt-colour-cutmix", teacher=tiny_run.path, train={"iterations": 2, "log_every": 1})
    pupil = oneway.fit(config, tmp_path / "pupil", quiet=True)
    assert all(line["consistency"] > 0 for line in pupil.metrics() if "consistency" in line)
    assert type(load_model(pupil.model_file, CPU).network).__name__ == "SwiftNet"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
@pytest.mark.parametrize("backbone", [TINY, "vit_tiny_patch16_dinov3_qkvb"])
def test_exported_files_agree_at_every_size(backbone, suffix, tmp_path):
    """One file for any number and size of images, the padding inside."""
    pytest.importorskip("onnxruntime")
    network = build(Model(name="vit", backbone=backbone), classes=5, seed=0).eval()
    FORMATS[suffix].write(network, "labels", tmp_path / f"model{suffix}", {})
    refuse_difference(compare(network, FORMATS[suffix].open(tmp_path / f"model{suffix}")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backbone": "resnet18"}, "resnet18: is no plain vision transformer. What works.*vit_small_patch14_dinov2"),
        ({"backbone": "swin_tiny_patch4_window7_224"}, "no plain vision transformer"),
        ({"backbone": "vit_smal_patch14_dinov2"}, "Did you mean vit_small_patch14_dinov2"),
    ],
    ids=str,
)
def test_other_encoders_are_refused_with_a_way_out(settings, message):
    """Convolutional ones are for the other networks."""
    with pytest.raises(UserError, match=message):
        build(Model(name="vit", **settings), classes=2, seed=0)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"model": {"name": "vit", "width": 0.5}}, "vit comes in one width; use --model.width 1"),
        ({"optimiser": {"layer_decay": 0.8}}, "block of a vit, and swiftnet is no vit; use --optimiser.layer-decay 1"),
    ],
    ids=str,
)
def test_settings_without_effect_are_refused(tree, message):
    """Vision transformers come in sizes of their own; only they have blocks with rates of their own."""
    with pytest.raises(UserError, match=message):
        configuration.build(tree, source="test")


def test_weights_that_are_not_here_have_the_usual_message(monkeypatch):
    """What to fetch, by timm's name of the weights."""
    monkeypatch.setattr(imagenet, "_out_of_reach", lambda url: "offline")
    monkeypatch.setattr(imagenet, "try_to_load_from_cache", lambda *_: None)
    with pytest.raises(UserError, match=r"hf download timm/vit_small_patch14_dinov2.lvd142m model.safetensors"):
        imagenet.fetch(SMALL_DINO)
