"""The two predictions that one-way consistency compares, for perturbation parameters chosen by hand.

Shapes: N images of H×W pixels, C classes; logits at h×w.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from torch import Tensor, nn

from oneway.common.terms import IGNORE
from oneway.config import Perturb
from oneway.draws import Photometric, draw_perturbation
from oneway.models.norm import population_statistics
from oneway.ops.losses import kl_map, pixels_of, upsample
from oneway.ops.photometric import with_strength
from oneway.perturb import Perturbation, phtps

RANGES = {"brightness": (-0.5, 0.5), "saturation": (0.0, 3.0), "hue": (-0.5, 0.5), "contrast": (0.0, 3.0)}
"""Lowest and highest values that can be chosen: beyond what training ever draws."""

FARTHEST = 0.25
"""How far a control point can be moved along each axis, as a fraction of the image's height."""

AS_CHOSEN = Perturb(deviation=1.0)
"""Perturbs with parameters as they are: displacements are in fractions of the height already."""

Shift = Annotated[float, Field(ge=-FARTHEST, le=FARTHEST, allow_inf_nan=False)]
Point = tuple[Shift, Shift]
Channel = Annotated[int, Field(ge=0, le=2)]
Permutation = tuple[Channel, Channel, Channel]
Value = TypeVar("Value")


def _chosen(name: str) -> object:
    low, high = RANGES[name]
    return Field(ge=low, le=high, allow_inf_nan=False)


def _each_once(permutation: Permutation) -> Permutation:
    if sorted(permutation) != [0, 1, 2]:
        raise ValueError("names a channel twice")
    return permutation


class Parameters(BaseModel):
    """φ = (b, s, h, c, π) and γ of the paper, for one image. The default is the identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    brightness: Annotated[float, _chosen("brightness")] = 0.0
    saturation: Annotated[float, _chosen("saturation")] = 1.0
    hue: Annotated[float, _chosen("hue")] = 0.0
    """A change of hue in turns: 36° is 0.1."""

    contrast: Annotated[float, _chosen("contrast")] = 1.0
    permutation: Annotated[Permutation, AfterValidator(_each_once)] = (0, 1, 2)
    """Red, green and blue of the result are these channels."""

    displacements: tuple[Point, Point, Point, Point] = ((0.0, 0.0),) * 4
    """(x, y) of the control points, upper left, upper right, lower left, lower right; in fractions of the height."""


def draw_parameters(seed: int, config: Perturb) -> Parameters:
    """Parameters that training would draw at the strengths of a run; cut off where what can be chosen ends."""
    draw = draw_perturbation(seed, 0, count=1)
    colours = with_strength(draw.photometric, config.photometric)
    fractions = config.geometric * config.deviation * draw.displacements[0]
    return Parameters.model_validate(
        {
            **{name: min(max(float(getattr(colours, name)), low), high) for name, (low, high) in RANGES.items()},
            "permutation": colours.permutation[0].tolist(),
            "displacements": fractions.clamp(-FARTHEST, FARTHEST).tolist(),
        }
    )


def perturbation_of(parameters: Parameters, x: Tensor) -> Perturbation:
    """The perturbation of one image (N = 1) that training would use, had it drawn these parameters."""

    def column(*values: float) -> Tensor:
        return torch.tensor(values, device=x.device)

    colours = Photometric(
        brightness=column(parameters.brightness),
        saturation=column(parameters.saturation),
        hue=column(parameters.hue),
        contrast=column(parameters.contrast),
        permutation=torch.tensor([parameters.permutation], device=x.device),
        u=column(0),
    )
    displacements = torch.tensor([parameters.displacements], device=x.device)
    chosen = draw_perturbation(0, 0, count=1)._replace(photometric=colours, displacements=displacements)
    return phtps(chosen, x, AS_CHOSEN)


def logits_of(network: nn.Module, x: Tensor) -> Tensor:
    """Predictions as they would be in use: with population statistics."""
    with population_statistics(network):
        # Convolutions are fastest on pixels with their channels side by side, and what follows is on planes.
        return network(x.contiguous(memory_format=torch.channels_last)).contiguous()


def probabilities_of(network: nn.Module, x: Tensor) -> Tensor:
    """N×C×H×W: those of each class, at the size of the images."""
    return upsample(logits_of(network, x), pixels_of(x)).softmax(dim=1)


def masked_means(values: Tensor, valid: Tensor) -> Tensor:
    """N: the mean over the valid pixels of each image; 0 where none is."""
    return torch.where(valid, values, 0).sum(dim=(1, 2)) / valid.sum(dim=(1, 2)).clamp(min=1)


def compare(target: Tensor, classes: Tensor, logits: Tensor, valid: Tensor) -> dict[str, Any]:
    """What a model says about a perturbed image, beside what it should say.

    Args:
        target: 1×C×H×W, the probabilities of the clean prediction, warped.
        classes: 1×H×W, the most probable ones there.
        logits: Of the prediction for the perturbed image.
        valid: 1×H×W, which pixels count.

    Returns:
        `target` and `prediction`, H×W bytes: the classes, IGNORE where a pixel does not count. `kl`, H×W:
        KL(target ‖ prediction), 0 likewise; `mean_kl`. `agreement`: the share of pixels where both have the same class.
    """
    log_prediction = upsample(logits, pixels_of(target)).log_softmax(dim=1)
    kl = torch.where(valid, kl_map(target, log_prediction), 0).clamp(min=0)  # rounding can go below
    predicted = log_prediction.max(dim=1).indices

    def shown(classes: Tensor) -> Tensor:
        return torch.where(valid, classes, IGNORE).to(torch.uint8)[0].cpu()

    return {
        "target": shown(classes),
        "prediction": shown(predicted),
        "kl": kl[0].cpu(),
        "mean_kl": float(masked_means(kl, valid)),
        "agreement": float(masked_means((classes == predicted).float(), valid)),
    }


def recall(kept: dict[Hashable, Value], key: Hashable, most: int, make: Callable[[], Value]) -> Value:
    """What is kept under a key, or else is made now; the latest `most` are kept."""
    kept[key] = value = kept.pop(key) if key in kept else make()
    while len(kept) > most:
        del kept[next(iter(kept))]
    return value


class Comparer:
    """Compares networks, and keeps what need not be computed again when a parameter changes. For one thread."""

    def __init__(self, networks: Sequence[nn.Module], device: torch.device) -> None:
        self.networks = tuple(network.to(memory_format=torch.channels_last) for network in networks)
        self.device = device
        self.clean: dict[Hashable, Tensor] = {}
        self.warped: dict[Hashable, tuple[Tensor, Tensor]] = {}

    @torch.inference_mode()
    def compare(self, key: str, x: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor, list[dict[str, Any]]]:
        """The perturbed image, which pixels are valid (H×W), and a comparison for each network.

        `key` identifies the image x (1×3×H×W): its clean predictions are kept, and so are the warped ones until the
        geometry changes.
        """
        x = x.to(self.device)
        perturbation = perturbation_of(parameters, x)
        valid = perturbation.valid
        assert valid is not None
        perturbed, count = perturbation.image(x), len(self.networks)

        def target(index: int, network: nn.Module) -> tuple[Tensor, Tensor]:
            clean = recall(self.clean, (key, index), 2 * count, lambda: probabilities_of(network, x))
            warped = perturbation.prediction(clean)
            return warped, warped.max(dim=1).indices  # on a CPU, several times as fast as argmax

        comparisons = []
        for index, network in enumerate(self.networks):
            geometry = key, index, parameters.displacements
            kept = recall(self.warped, geometry, count, partial(target, index, network))
            comparisons.append(compare(*kept, logits_of(network, perturbed), valid))
        return perturbed, valid[0].cpu(), comparisons
