"""Facts about `model.weights`: a file's, an earlier run's, and what is said about what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor

from oneway.common.errors import UserError
from oneway.config import Model
from oneway.models import build
from oneway.runs import TrainedModel, save_model
from oneway.runs.weights import Loaded, load_weights, read
from oneway.tools.networks import prepare

CLASSES = ("road", "sky", "car", "tree", "house")


def small(seed: int = 0, classes: int = 5, **settings: object) -> nn.Module:
    return build(Model.model_validate({"width": 0.125, **settings}), classes, seed)


def filled(network: nn.Module, weights: object) -> Loaded:
    return load_weights(network, read(str(weights)))


def saved(tensors: dict[str, Tensor], path: Path) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


def run_with(network: nn.Module, folder: Path, classes: tuple[str, ...] = CLASSES) -> Path:
    """A run folder, as far as it matters here."""
    folder.mkdir()
    save_model(folder / "model.safetensors", TrainedModel(network, classes, ()), Model())
    return folder


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_encoder_weights_come_from_a_file(tmp_path, suffix):
    """A whole classifier's state dict fills the encoder; its own classifier is of no use, and that is said."""
    source = timm.create_model("resnet18", channels=(8, 16, 32, 64), num_classes=10)
    network = small()
    loaded = filled(network, saved(source.state_dict(), tmp_path / f"weights{suffix}"))
    assert torch.equal(network.encoder.net.conv1.weight, source.conv1.weight)
    assert torch.equal(network.encoder.net.layer4[1].bn2.running_var, source.layer4[1].bn2.running_var)
    assert {id(p) for p in loaded.parameters} == {id(p) for p in network.encoder.parameters()}
    (remark,) = loaded.remarks
    assert "fills 126 of the encoder's 126 tensors. Of no use here: fc." in remark


@pytest.mark.parametrize("prefix", ["module.", "backbone.", "model.encoder."])
def test_what_stands_before_all_names_does_not_matter(tmp_path, prefix):
    """Other tools put their own there, and keep the weights under a key."""
    source = timm.create_model("resnet18", channels=(8, 16, 32, 64), num_classes=0)
    path = tmp_path / "checkpoint.pth"
    torch.save({"epoch": 3, "state_dict": {prefix + name: t for name, t in source.state_dict().items()}}, path)
    network = small()
    filled(network, path)
    assert torch.equal(network.encoder.net.layer1[0].conv1.weight, source.layer1[0].conv1.weight)


@pytest.mark.parametrize(
    "backbone",
    [
        "mobilenetv4_conv_small_035",
        "efficientnet_lite0",
        "convnext_atto",
        "mvitv2_tiny",  # is not taken apart but wrapped
    ],
)
def test_names_that_timm_changes_are_found_again(tmp_path, backbone):
    """A classifier's `stages.0` is `stages_0` where timm takes a network apart; every feature is then the same."""
    source = timm.create_model(backbone).eval()
    network = small(width=1, backbone=backbone).eval()
    loaded = filled(network, saved(source.state_dict(), tmp_path / "weights.safetensors"))
    assert len(loaded.parameters) == len(list(network.encoder.parameters()))
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(network.encoder(x)[-1], source.forward_intermediates(x)[1][-1])


TORCHVISIONS = {"resnet18": "resnet18", "mobilenet_v2": "mobilenetv2_100", "regnet_y_400mf": "regnety_004"}
"""Its names of networks, and timm's."""


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("name", TORCHVISIONS)
def test_files_of_torchvision_fill_timms_encoders(tmp_path, name, suffix):
    """Under names that are the same, that timm's loader knows, or that differ where the tensors' order does not.

    torchvision itself says what the features should be. Safetensors have no order but that of names.
    """
    torch.manual_seed(3)
    source = torchvision.models.get_model(name).eval()
    for buffer in source.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    path = saved(source.state_dict(), tmp_path / f"weights{suffix}")
    network = small(width=1, backbone=TORCHVISIONS[name]).eval()
    if (name, suffix) == ("mobilenet_v2", ".safetensors"):
        with pytest.raises(UserError, match="of another network: it has"):
            filled(network, path)
        return
    assert len(filled(network, path).parameters) == len(list(network.encoder.parameters()))
    deepest = {"resnet18": "layer4", "mobilenet_v2": "features.17", "regnet_y_400mf": "trunk_output"}
    layers = create_feature_extractor(source, {deepest[name]: "deepest"})
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        ours, theirs = network.encoder(x)[-1], layers(x)["deepest"]
    torch.testing.assert_close(ours.relu() if name == "resnet18" else ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_stored_not_trained(tmp_path, dtype):
    """A small file's numbers, exactly, in parameters of full precision."""
    source = timm.create_model("resnet18", channels=(8, 16, 32, 64), num_classes=0).state_dict()
    halves = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in source.items()}
    network = small()
    filled(network, saved(halves, tmp_path / "weights.safetensors"))
    own = network.encoder.net.state_dict()
    assert all(torch.equal(own[name], tensor.float()) for name, tensor in halves.items())
    assert {p.dtype for p in network.parameters()} == {torch.float32}


def test_what_a_file_lacks_is_said(tmp_path):
    """A shallower network's weights fill what they can; the rest stays random, and is not called pretrained."""
    source = timm.create_model("resnet18", channels=(8, 16, 32, 64), num_classes=0)
    network = small(backbone="resnet34")
    untouched = network.encoder.net.layer1[2].conv1.weight.clone()
    loaded = filled(network, saved(source.state_dict(), tmp_path / "weights.pth"))
    assert "It lacks layer1.2.conv1.weight, layer1.2.bn1.weight, layer1.2.bn1.bias and" in loaded.remarks[0]
    assert torch.equal(network.encoder.net.layer1[2].conv1.weight, untouched)
    assert len(loaded.parameters) == len(list(source.parameters()))


@pytest.mark.parametrize("as_file", [False, True])
def test_an_earlier_run_with_the_same_classes_is_taken_whole(tmp_path, as_file):
    """Every tensor, the classifier's too; its classes are told, since their order counts."""
    earlier, network = small(seed=1), small(seed=2)
    folder = run_with(earlier, tmp_path / "run")
    loaded = filled(network, folder / "model.safetensors" if as_file else folder)
    assert all(torch.equal(tensor, network.state_dict()[name]) for name, tensor in earlier.state_dict().items())
    assert len(loaded.parameters) == len(list(network.parameters()))
    assert "Its classes are, in this order, road, sky, car, tree, house." in loaded.remarks[0]


@pytest.mark.parametrize("name", ["swiftnet", "deeplabv2", "deeplabv3plus", "wrn-28-2"])
def test_an_earlier_run_with_other_classes_gives_all_but_its_classifier(tmp_path, name):
    """Which starts anew; it is said, and its parameters learn at the rate of new ones."""
    settings = {"name": name, "width": 0.125 if name != "wrn-28-2" else 1}
    earlier, network = small(seed=1, **settings), small(seed=2, classes=7, **settings)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    loaded = filled(network, run_with(earlier, tmp_path / "run"))
    replaced = [key for key, tensor in earlier.state_dict().items() if tensor.shape != before[key].shape]
    assert len(replaced) == (8 if name == "deeplabv2" else 2)
    for key, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[key] if key in replaced else earlier.state_dict()[key])
    assert len(loaded.parameters) == len(list(network.parameters())) - len(replaced)
    assert "It has 5 classes instead of 7: " in loaded.remarks[0]
    assert replaced[0] in loaded.remarks[0]


def test_an_earlier_run_lends_its_encoder_to_another_decoder(tmp_path):
    """What both have in common is taken, and what remains is named."""
    earlier, network = small(seed=1), small(name="deeplabv3plus", backbone="resnet18")
    loaded = filled(network, run_with(earlier, tmp_path / "run"))
    assert torch.equal(network.encoder.net.conv1.weight, earlier.encoder.net.conv1.weight)
    assert "It lacks pyramid.scales.0.0.weight" in loaded.remarks[0]
    assert "Of no use here: head.0.bias" in loaded.remarks[0]


def test_without_weights_there_is_nothing_to_say():
    """Nothing is pretrained."""
    prepared = prepare(Model(width=0.125), classes=5, seed=0, task="segmentation", crop=None)
    assert (prepared.pretrained, prepared.remarks) == ([], [])


def test_weights_are_found_from_another_folder(tmp_path, monkeypatch):
    """As data are: a run that is continued elsewhere reads the same file."""
    monkeypatch.chdir(tmp_path)
    assert Model(weights="earlier/run").weights == str(tmp_path / "earlier" / "run")
    assert Model(weights="~/w.pth").weights == str(Path.home() / "w.pth")
    assert [Model(weights=word).weights for word in ("imagenet", "none", None)] == ["imagenet", None, None]


class Trap:
    """What a hostile pickle does: runs something when it is read."""

    def __reduce__(self):
        return (print, ("executed",))


def test_unusable_weights_are_refused_with_the_reason(tmp_path, capsys):
    """Missing, empty, cut off, of another network; and a pickle with code in it, which does not run."""
    other = timm.create_model("resnet18", channels=(8, 16, 32, 65)).state_dict()
    trap, cut = tmp_path / "trap.pth", tmp_path / "cut.safetensors"
    torch.save({"conv1.weight": Trap()}, trap)
    cut.write_bytes(saved(other, tmp_path / "whole.safetensors").read_bytes()[:1000])
    (tmp_path / "empty.pth").touch()
    (tmp_path / "folder").mkdir()
    cases = {
        tmp_path / "none.pth": "no such file",
        tmp_path / "folder": "no such file",
        tmp_path / "empty.pth": "not a readable state dict",
        cut: "damaged, or no safetensors file",
        trap: "not a readable state dict",
        tmp_path
        / "whole.safetensors": r"another network: layer4.0.conv1.weight has shape 65×32×3×3 there and 64×32×3×3",
        saved({"a": torch.zeros(2)}, tmp_path / "a.pth"): "another network: it has a; wanted are conv1.weight, ",
        saved({"a": 3, "b": [torch.zeros(2)]}, tmp_path / "numbers.pth"): "not a readable state dict",
    }
    for path, reason in cases.items():
        with pytest.raises(UserError, match=reason) as error:
            filled(small(), path)
        assert str(path) in str(error.value)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize("about", ["{", "[]", '{"classes": 3}', '"text"'])
def test_a_file_that_lies_about_itself_is_refused(tmp_path, about):
    """What a model says of itself is not trusted to be well-formed."""
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(small().state_dict(), path, {"oneway": about})
    with pytest.raises(UserError, match=r"model\.safetensors: (damaged|not written by oneway)"):
        filled(small(), path)
