"""The model of a run, loaded from its file and made ready to predict on a device."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError, unknown
from oneway.common.links import refuse_link
from oneway.common.run_files import CONFIG, MODEL, describe_exported
from oneway.config import Precision
from oneway.data.folder.classes import default_colours
from oneway.models.favoured import favoured
from oneway.models.mirrored import Mirrored
from oneway.models.mlp import Perceptron
from oneway.models.winograd import use_winograd
from oneway.runs import choose_device, load_model, no_run
from oneway.tools.predict.predictor import Predictor

PROBE = 64
"""Side of the black image that shows whether a network predicts for pixels or for whole images."""


def load(
    run: str | PathLike[str],
    device: str = "auto",
    factory: str | None = None,
    mirror: bool = False,
    precision: Precision = "auto",
    favour: Mapping[str, float] | None = None,
) -> Predictor:
    """The model of a run folder, or of a model.safetensors alone; with `mirror`, averaged over mirrored images too.

    It computes in bfloat16 on a GPU and in float32 on a CPU, unless `precision` says otherwise. Probabilities of the
    classes in `favour` are multiplied by its factors.
    """
    if precision not in (known := get_args(Precision)):
        raise unknown("precision", precision, known)
    path = Path(run)
    file = refuse_link(path / MODEL) if path.is_dir() else path
    if (not file.exists() and not (path / CONFIG).exists()) or describe_exported(path):
        raise no_run(path)
    chosen = choose_device(device)
    if chosen.type == "cuda":  # by its number: another thread, or a later call, may have another current one
        chosen = torch.device("cuda", torch.cuda.current_device())
    trained = load_model(file, chosen, factory)
    if isinstance(trained.network, Perceptron):
        raise UserError(f"{file}: predicts for points in the plane, and not for images.")
    network = trained.network.requires_grad_(False)
    classifies = _classifies(network, chosen)  # before its weights are rounded, which wants inputs that are so too
    if mirror and classifies:
        raise UserError(f"{file}: classifies whole images; only masks are averaged over mirrored ones.")
    half = precision == "bfloat16" or (precision == "auto" and chosen.type == "cuda")
    network = _made_fast(network, chosen, half, ours=factory is None)
    if mirror:
        network = Mirrored(network)
    network = favoured(network, trained.classes, favour, chosen)
    colours = trained.colours or default_colours(trained.classes)
    factors = {name: float(factor) for name, factor in (favour or {}).items()}
    how = trained.masks, trained.image_style, trained.reduction, half, factors
    return Predictor(network, trained.classes, colours, chosen, file, classifies, *how)


def _made_fast(network: nn.Module, device: torch.device, half: bool, ours: bool) -> nn.Module:
    """The network as it predicts fastest on a device; layers of networks that are not ours stay as they are."""
    if device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)
        if half and ours and find_spec("triton") is not None:
            from oneway.models.fuse import for_prediction

            return for_prediction(network)
    return use_winograd(network) if device.type == "cpu" and ours and not half else network


@torch.inference_mode()
def _classifies(network: nn.Module, device: torch.device) -> bool:
    try:
        logits: Tensor = network(torch.zeros(1, 3, PROBE, PROBE, device=device))
    except Exception:  # a network of the user's own may want another size
        return False
    return logits.ndim == 2
