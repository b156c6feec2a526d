"""Perturbations: what the student's input undergoes, and what that means for a prediction.

A perturbation is a few functions of one draw: what happens to the image, what happens to a prediction and how that is
undone, and which pixels stay valid.

Shapes: N images of H×W pixels, C classes. A prediction is N×C×H×W, or N×C for a whole image: geometry does not touch
the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oneway.config import Perturb
from oneway.data.dataset import IGNORE
from oneway.draws import PerturbationDraw
from oneway.methods import PerturbationName
from oneway.perturb.cutmix import exchange
from oneway.perturb.photometric import photometric, with_strength
from oneway.perturb.tps import sampling_points, splat, valid_points, warp

Undone = tuple[Tensor, Tensor | None]


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def _undone_unchanged(tensor: Tensor) -> Undone:
    return tensor, None


@dataclass(frozen=True)
class Perturbation:
    """One draw of a perturbation for a batch. The default is the identity."""

    image: Callable[[Tensor], Tensor] = _unchanged
    """What happens to images, N×3×H×W."""

    prediction: Callable[[Tensor], Tensor] = _unchanged
    """What happens to predictions for them."""

    valid: Tensor | None = None
    """N×H×W, whether a pixel of the result shows a part of the image; None where all do."""

    undo: Callable[[Tensor], Undone] = _undone_unchanged
    """Brings predictions for perturbed images back to the clean ones, with the pixels that are then valid."""

    clean_logits: Tensor | None = None
    """Of the clean images, where the perturbation was searched around them; else they are yet to be computed."""

    fused: Fused | None = None
    """On a GPU: what takes the place of all but `image`, where it supports the logits."""


@dataclass(frozen=True)
class Fused:
    """The divergence of a moved prediction and another, straight from their logits."""

    supports: Callable[[Tensor, tuple[int, int]], bool]
    """Whether logits can be taken to H×W pixels; else the perturbation is the plain one."""

    kl: Callable[[Tensor, Tensor, tuple[int, int]], Tensor]
    """Of a teacher's logits, moved, and a student's, at H×W pixels."""

    plain: Callable[[], Perturbation]


def compose(first: Perturbation, second: Perturbation) -> Perturbation:
    """`second` after `first`."""

    def undo(prediction: Tensor) -> Undone:
        prediction, valid = second.undo(prediction)
        prediction, valid_of_first = first.undo(prediction)
        carried = None if valid is None else first.undo(valid[:, None].float())[0][:, 0] == 1
        return prediction, both(carried, valid_of_first)

    return Perturbation(
        image=lambda x: second.image(first.image(x)),
        prediction=lambda p: second.prediction(first.prediction(p)),
        valid=moved(first.valid, second),
        undo=undo,
    )


def moved(valid: Tensor | None, perturbation: Perturbation) -> Tensor | None:
    """Which pixels are valid after a perturbation, where not all were before."""
    if valid is None:
        return perturbation.valid
    return both(perturbation.prediction(valid[:, None].float())[:, 0] == 1, perturbation.valid)


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Pixels valid in each of two masks; None stands for all."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def perturb_labels(labels: Tensor, perturbation: Perturbation) -> Tensor:
    """N×H×W labels moved as predictions are, by the nearest pixel; IGNORE where nothing is left.

    Classes cannot be interpolated, but coordinates can: a warped map of positions says where each pixel comes from, and
    from which image.
    """
    if labels.ndim == 1:
        return labels
    places = [torch.arange(size, dtype=torch.float64, device=labels.device) for size in labels.shape]
    positions = perturbation.prediction(torch.stack(torch.meshgrid(*places, indexing="ij"), dim=1))
    nearest = labels[positions.round().long().unbind(dim=1)]
    return nearest if perturbation.valid is None else torch.where(perturbation.valid, nearest, IGNORE)


def ph(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """T^P: colours change, predictions should not."""
    if config.photometric == 0:
        return Perturbation()  # the identity to the bit, not merely to rounding
    parameters = with_strength(draw.photometric, config.photometric)
    return Perturbation(image=lambda x: photometric(x, parameters))


def tps(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """T^G: images and predictions are warped alike."""
    height, width = x.shape[-2:]
    deviation = config.geometric * config.deviation * height
    points = sampling_points(deviation * draw.displacements.to(x.dtype), height, width)
    return Perturbation(
        image=lambda x: warp(x, points),
        prediction=lambda p: warp(p, points) if p.ndim == 4 else p,
        valid=valid_points(points),
        undo=lambda p: splat(p, points) if p.ndim == 4 else (p, None),
    )


def phtps(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """T^G ∘ T^P, the paper's perturbation."""
    return compose(ph(draw, x, config), tps(draw, x, config))


def cutmix(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """Pairs of images exchange a rectangle, and so do their predictions."""
    return Perturbation(
        image=lambda x: exchange(x, draw.boxes),
        prediction=lambda p: exchange(p, draw.boxes),
        undo=lambda p: (exchange(p, draw.boxes), None),
    )


def noise(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """Additive Gaussian noise."""
    return Perturbation(image=lambda x: x + config.noise * draw.noise.to(x.dtype))


PERTURBATIONS: dict[PerturbationName, Callable[[PerturbationDraw, Tensor, Perturb], Perturbation]] = {
    "ph": ph,
    "tps": tps,
    "phtps": phtps,
    "cutmix": cutmix,
    "noise": noise,
}
"""Perturbations that are random alone, for a batch x; virtual adversarial ones also ask a model, see `vat`."""
