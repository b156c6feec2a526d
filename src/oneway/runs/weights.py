"""Where weights come from that are not random: ImageNet training, a state dict in a file, or an earlier run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import safetensors
import timm
import torch
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.common.run_files import MODEL
from oneway.common.words import listed
from oneway.models.encoder import Encoder

TORCHVISION_TAG = "tv_in1k"
"""torchvision's ImageNet training, the one the paper starts from."""
WRAPPINGS = ("state_dict", "model_state_dict", "model")
"""Keys under which training checkpoints keep the weights."""


class Loaded(NamedTuple):
    """What `model.weights` filled."""

    parameters: list[nn.Parameter]
    """They learn at a rate of their own (`optimiser.learning_rate_pretrained`)."""

    remarks: list[str]
    """What fitted and what did not, in words."""


@dataclass(frozen=True)
class Source:
    """Named tensors; with `classes` they are a whole network of ours, trained earlier."""

    tensors: Mapping[str, Tensor]
    classes: tuple[str, ...] | None = None
    flags: str = ""
    """That make that network."""


def load_weights(network: nn.Module, weights: str) -> Loaded:
    """Fills the network as `model.weights` says, in place; a tensor of another shape than it should have is refused."""
    encoder = getattr(network, "encoder", None)
    if not isinstance(encoder, Encoder):
        encoder = None
    source = _imagenet(encoder.backbone) if encoder and weights == "imagenet" else read(weights)
    # A state dict from elsewhere is a classifier's, of use to the encoder; ours knows the decoder too.
    part, target = ("encoder", encoder.net) if encoder and source.classes is None else ("network", network)
    own = target.state_dict()
    origins = _origins(own, source.tensors)
    found = {name: source.tensors[origin] for name, origin in origins.items()}
    differing = [name for name in found if found[name].shape != own[name].shape]
    anew = [name for name in differing if _counts_classes(found[name], own[name], source.classes)]
    filling = {name: tensor for name, tensor in found.items() if name not in differing}

    said = f"model.weights {weights}"
    if conflicts := [name for name in differing if name not in anew]:
        shapes = [f"{name} has shape {_shape(found[name])} there and {_shape(own[name])} here" for name in conflicts]
        made_by = f" It was made by {source.flags}." if source.flags else ""
        raise UserError(f"{said}: of another network: {listed(shapes)}.{made_by}")
    parameters = [parameter for name, parameter in target.named_parameters() if name in filling]
    if not parameters:
        raise UserError(f"{said}: of another network: it has {listed(source.tensors)}; wanted are {listed(own)}.")
    target.load_state_dict(filling, strict=False)

    missing = [name for name in own if name not in found and not name.endswith("num_batches_tracked")]
    remark = f"{said}: fills {len(filling)} of the {part}'s {len(own)} tensors."
    if missing:
        remark += f" It lacks {listed(missing)}: random."
    if anew and source.classes is not None:
        remark += f" It has {len(source.classes)} classes instead of {len(own[anew[0]])}: {listed(anew)} start anew."
    elif source.classes is not None and not missing:
        remark += f" Its classes are, in this order, {', '.join(source.classes)}."
    if unused := source.tensors.keys() - origins.values():
        remark += f" Of no use here: {listed(name for name in source.tensors if name in unused)}."
    return Loaded(parameters, [remark])


def read(weights: str) -> Source:
    """The tensors of a .safetensors or .pth file, or of a run folder's model; nothing but tensors is ever read."""
    path = Path(weights)
    if path.is_dir():
        path = path / MODEL
    if not path.is_file():
        raise UserError(f"model.weights {path}: no such file. Give 'imagenet', a .safetensors or .pth file, or a run.")
    try:
        return _safetensors(path) if path.suffix == ".safetensors" else Source(_pickled_tensors(path))
    except UserError:
        raise
    except Exception as error:  # damaged, truncated, hostile: to the user they are one
        raise UserError(f"model.weights {path}: not a readable state dict ({type(error).__name__}).") from error


def _safetensors(path: Path) -> Source:
    with safetensors.safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        about = json.loads((file.metadata() or {}).get("oneway", "null"))
    if isinstance(about, dict) and "classes" not in about:
        raise UserError(
            f"model.weights {path}: a checkpoint, from which --resume continues its run. Give the run folder instead: "
            "the model is there once the run has ended."
        )
    if about is None:
        return Source(tensors)
    model = {key: value for key, value in about.get("model", {}).items() if key in ("name", "backbone", "width")}
    flags = " ".join(f"--model.{key} {value}" for key, value in model.items() if value is not None)
    return Source(tensors, tuple(map(str, about["classes"])), flags)


def _pickled_tensors(path: Path) -> Mapping[str, Tensor]:
    state = torch.load(path, map_location="cpu", weights_only=True)
    for key in WRAPPINGS:
        state = state[key] if isinstance(state.get(key), Mapping) else state
    if not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise TypeError("something else than named tensors")
    return state


def _imagenet(backbone: str) -> Source:
    known = timm.list_pretrained(f"{backbone}.*")
    name = f"{backbone}.{TORCHVISION_TAG}"
    try:
        return Source(timm.create_model(name if name in known else backbone, pretrained=True).state_dict())
    except Exception as error:  # hubs, caches and networks fail in many ways; to the user they are one
        raise UserError(
            f"ImageNet weights of {backbone} could not be fetched ({type(error).__name__}). "
            "Give a file instead (--model.weights FILE), or start from random weights (--model.weights none)."
        ) from error


def _origins(own: Iterable[str], there: Iterable[str]) -> dict[str, str]:
    """Our names and theirs, which may all have a prefix such as `module.`.

    Where timm takes a network apart for its features, it writes `blocks_0` for `blocks.0`.
    """
    mine, theirs = {_flat(name): name for name in own}, {_flat(name): name for name in there}
    longest = max(mine, key=len)
    prefixes = sorted(name.removesuffix(longest) for name in theirs if name.endswith(longest))
    prefix = max(prefixes, key=lambda prefix: sum(prefix + name in theirs for name in mine), default="")
    return {mine[name]: theirs[prefix + name] for name in mine if prefix + name in theirs}


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _counts_classes(there: Tensor, here: Tensor, names: tuple[str, ...] | None) -> bool:
    """Whether two tensors differ in the number of classes and in nothing else."""
    return names is not None and there.shape == (len(names), *here.shape[1:])


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "()"
