"""ResNet encoders from timm, opened up where SwiftNet needs them, and their initial weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oneway.errors import UserError

STAGES = ("layer1", "layer2", "layer3", "layer4")
IMAGENET_TAG = "tv_in1k"
"""torchvision's ImageNet training, the one the paper starts from."""


class ResNetEncoder(nn.Module):
    """Features at strides 4, 8, 16 and 32, each the residual sum *before* the last ReLU of its stage.

    SwiftNet's decoder normalises and rectifies what it receives, so it wants the sums themselves; the next stage of the
    encoder gets them rectified, as in any ResNet.
    """

    def __init__(self, backbone: str, width: float = 1.0) -> None:
        super().__init__()
        self.channels = tuple(round(width * channels) for channels in (64, 128, 256, 512))
        self.net = timm.create_model(backbone, channels=self.channels, num_classes=0, global_pool="")
        for stage in STAGES:
            getattr(self.net, stage)[-1].act2 = nn.Identity()

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.net.maxpool(self.net.act1(self.net.bn1(self.net.conv1(x))))
        features = []
        for stage in STAGES:
            sums = getattr(self.net, stage)(x)
            features.append(sums)
            x = F.relu(sums)
        return features


def load_encoder(encoder: ResNetEncoder, backbone: str, weights: str) -> None:
    """Fills the encoder from ImageNet training (`imagenet`) or from a state dict in a file, in place."""
    state = _imagenet(backbone) if weights == "imagenet" else _read(Path(weights))
    # Classifiers have no place in a segmentation model.
    state = {name: tensor for name, tensor in state.items() if not name.startswith("fc.")}
    own = encoder.net.state_dict()
    problems = [f"lacks {name}" for name in own if name not in state and not name.endswith("num_batches_tracked")]
    problems += [f"has an unknown {name}" for name in state if name not in own]
    problems += [
        f"has {name} of shape {tuple(state[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    if problems:
        raise UserError(f"model.weights {weights}: not a {backbone} of this width: {'; '.join(problems[:3])}.")
    encoder.net.load_state_dict(state, strict=False)


def _imagenet(backbone: str) -> Mapping[str, Tensor]:
    try:
        return dict(timm.create_model(f"{backbone}.{IMAGENET_TAG}", pretrained=True).state_dict())
    except Exception as error:  # hubs, caches and networks fail in many ways; to the user they are one
        raise UserError(
            f"ImageNet weights of {backbone} could not be fetched ({type(error).__name__}). "
            "Give a file instead (--model.weights FILE), or start from random weights (leave the flag out)."
        ) from error


def _read(path: Path) -> Mapping[str, Tensor]:
    """A state dict from .safetensors, or from .pth with nothing but tensors in it."""
    if not path.is_file():
        raise UserError(f"model.weights {path}: no such file. Give 'imagenet' or a .safetensors or .pth file.")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"model.weights {path}: not a readable state dict ({type(error).__name__}).") from error
    if not isinstance(state, Mapping) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise UserError(f"model.weights {path}: holds something else than named tensors.")
    return state
