"""Facts about ImageNet weights: where they are looked for, and what is said, and when, if they cannot be had."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from huggingface_hub import constants
from huggingface_hub.errors import EntryNotFoundError

from data.small_sets import camvid, cityscapes, folder
from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.config import Model
from oneway.config.recipes import recipe
from oneway.runs import imagenet
from oneway.runs.weights import locate
from oneway.tools.networks import locate_weights, prepare
from oneway.tools.train import train
from small_runs import QUIET


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """An empty cache of the hub, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put(hub: Path, repository: str, tensors: dict[str, torch.Tensor], name: str = "model.safetensors") -> None:
    """A file in the cache, laid out as the hub's documentation says."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0123abcd")
    (folder / "snapshots" / "0123abcd").mkdir(parents=True)
    save = safetensors.torch.save_file if name.endswith(".safetensors") else torch.save
    save(tensors, folder / "snapshots" / "0123abcd" / name)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_what_was_fetched_once_needs_no_network(hub, name):
    """The training of torchvision for the default encoder; it learns at a rate of its own, the decoder does not."""
    source = timm.create_model("resnet18")
    put(hub, "timm/resnet18.tv_in1k", source.state_dict(), name)
    config = Model(weights="imagenet")
    prepared = prepare(config, 5, 0, "segmentation", None, locate_weights(config))
    assert torch.equal(prepared.network.encoder.net.layer4[1].bn2.weight, source.layer4[1].bn2.weight)
    assert torch.equal(prepared.network.encoder.net.conv1.weight, source.conv1.weight)
    assert {id(p) for p in prepared.pretrained} == {id(p) for p in prepared.network.encoder.parameters()}
    expected = "model.weights imagenet (resnet18.tv_in1k): fills 120 of the encoder's 120 tensors."
    assert expected in prepared.remarks[0]


@pytest.mark.parametrize(
    ("settings", "repository"),
    [
        ({}, "timm/resnet18.tv_in1k"),
        ({"name": "deeplabv2"}, "timm/resnet101.tv_in1k"),
        ({"name": "deeplabv3plus"}, "timm/resnet50.tv_in1k"),
        ({"backbone": "resnet18.a1_in1k"}, "timm/resnet18.a1_in1k"),
        ({"backbone": "tf_efficientnet_lite0"}, "timm/tf_efficientnet_lite0.in1k"),
    ],
    ids=str,
)
def test_what_cannot_be_fetched_is_answered_with_three_ways_out(hub, settings, repository):
    """The command that fetches them, and the folder where they then lie; a file; random weights."""
    with pytest.raises(UserError) as error:
        locate(Model(weights="imagenet", **settings))
    said = str(error.value)
    assert f"hf download {repository} model.safetensors\n" in said
    assert f"lie in {hub / 'models--'}{repository.replace('/', '--')} " in said
    assert "--model.weights FILE" in said
    assert said.endswith("--model.weights none")


@pytest.mark.parametrize(("name", "lay_out"), [("folder", folder), ("camvid", camvid), ("cityscapes-half", cityscapes)])
def test_weights_are_asked_for_before_images_are_decoded(hub, name, lay_out, tmp_path):
    """And before there is a run folder."""
    config = recipe(name).changed(data={"path": lay_out(tmp_path / "data")}, train={"device": "cpu"})
    with pytest.raises(UserError, match=r"model\.weights imagenet.*cannot be fetched"):
        train(config, tmp_path / "run", resume=False, console=QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_file_that_is_no_state_dict_is_refused_before_images_are_decoded(tmp_path):
    """As weights that cannot be fetched are."""
    (tmp_path / "weights.pth").write_bytes(b"a web page, perhaps")
    config = recipe("folder").changed(
        data={"path": folder(tmp_path / "data")},
        model={"weights": str(tmp_path / "weights.pth")},
        train={"device": "cpu"},
    )
    with pytest.raises(UserError, match=r"weights\.pth: not a readable state dict"):
        train(config, tmp_path / "run", resume=False, console=QUIET)


def test_a_hub_that_does_not_answer_is_not_waited_for(hub, monkeypatch):
    """Neither are its own repetitions, nor an address that is looked up for minutes."""
    monkeypatch.setattr(imagenet, "PATIENCE", 0.2)
    monkeypatch.setattr(imagenet, "get_hf_file_metadata", lambda url, timeout: time.sleep(20))
    began = time.monotonic()
    with pytest.raises(UserError, match="no answer within"):
        imagenet.fetch("resnet18")
    assert time.monotonic() - began < 10


def test_a_hub_that_answers_is_asked_for_either_file(hub, monkeypatch, tmp_path):
    """A network whose weights it has in the older format alone; one file of the two is enough."""
    asked = []

    def download(repository: str, file: str) -> str:
        asked.append((repository, file))
        if file == "model.safetensors":
            raise EntryNotFoundError("not there")
        return str(tmp_path / file)

    monkeypatch.setattr(imagenet, "get_hf_file_metadata", lambda url, timeout: None)
    monkeypatch.setattr(imagenet, "hf_hub_download", download)
    assert imagenet.fetch("resnet34") == ("resnet34.tv_in1k", tmp_path / "pytorch_model.bin")
    assert asked == [("timm/resnet34.tv_in1k", file) for file in ("model.safetensors", "pytorch_model.bin")]


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ("mobilenetv4_conv_small_035", "has no weights of mobilenetv4_conv_small_035.*--model.weights none"),
        ("resnet18.nosuch", "has no weights of resnet18.nosuch. It has resnet18.a1_in1k, .*tv_in1k"),
        ("resnt18", "timm knows no such model. Did you mean resnet18"),
        ("legacy_seresnet18", r"download https://.*\.pth and give the file"),
    ],
)
def test_a_backbone_without_weights_is_told_apart_from_a_missing_network(hub, backbone, message):
    """A command that fetches nothing would be of no help."""
    with pytest.raises(UserError, match=message):
        locate(Model(backbone=backbone, weights="imagenet"))


def test_imagenet_is_for_networks_with_an_encoder():
    """A factory's network brings what weights it wants."""
    for model in ({"name": "wrn-28-2"}, {"factory": "package.module:function"}):
        data = {"name": "cifar10" if "name" in model else "streets"}
        with pytest.raises(UserError, match=r"model\.weights imagenet fills the encoder of swiftnet"):
            configuration.build({"data": data, "model": {**model, "weights": "imagenet"}}, source="test")


def test_imagenet_is_for_whole_networks():
    """A narrow one has to start from random weights, or from a run of its own width."""
    with pytest.raises(UserError, match=r"model\.width 0\.5 makes a narrower network.*--model\.weights none"):
        configuration.build({"model": {"width": 0.5, "weights": "imagenet"}}, source="test")
    configuration.build({"model": {"width": 0.5, "weights": "runs/narrow"}}, source="test")


def test_torchvisions_training_normalises_as_timms_choice_does():
    """A model takes its mean and deviation from the latter, and its weights from the former."""
    for name in timm.list_pretrained(f"*.{imagenet.TORCHVISION_TAG}"):
        preferred, default = timm.get_pretrained_cfg(name), timm.get_pretrained_cfg(name.partition(".")[0])
        assert (preferred.mean, preferred.std) == (default.mean, default.std)
