"""Perturbations: what the student's input undergoes, and what that means for a prediction.

A perturbation is three functions of one draw: what happens to the image, what happens to a prediction, and which pixels
stay valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from oneway.config import Perturb
from oneway.draws import PerturbationDraw
from oneway.perturb.photometric import photometric, with_strength
from oneway.perturb.tps import sampling_points, valid_points, warp


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True)
class Perturbation:
    """One draw of a perturbation for a batch of N images of H×W pixels."""

    image: Callable[[Tensor], Tensor] = _unchanged
    """What happens to images, N×3×H×W."""

    prediction: Callable[[Tensor], Tensor] = _unchanged
    """What happens to predictions for them, N×C×H×W."""

    valid: Tensor | None = None
    """N×H×W, whether a pixel of the result shows a part of the image; None where all do."""


def compose(first: Perturbation, second: Perturbation) -> Perturbation:
    """`second` after `first`."""
    valid = second.valid
    if first.valid is not None:
        still_valid = second.prediction(first.valid[:, None].float())[:, 0] == 1
        valid = still_valid if valid is None else valid & still_valid
    return Perturbation(
        image=lambda x: second.image(first.image(x)),
        prediction=lambda p: second.prediction(first.prediction(p)),
        valid=valid,
    )


def ph(draw: PerturbationDraw, size: tuple[int, int], config: Perturb) -> Perturbation:
    """T^P: colours change, predictions should not."""
    if config.photometric == 0:
        return Perturbation()  # the identity to the bit, not merely to rounding
    parameters = with_strength(draw.photometric, config.photometric)
    return Perturbation(image=lambda x: photometric(x, parameters))


def tps(draw: PerturbationDraw, size: tuple[int, int], config: Perturb) -> Perturbation:
    """T^G: images and predictions are warped alike."""
    deviation = config.geometric * config.deviation * size[0]
    points = sampling_points(deviation * draw.displacements, *size)
    return Perturbation(
        image=lambda x: warp(x, points.to(x.dtype)),
        prediction=lambda p: warp(p, points.to(p.dtype)),
        valid=valid_points(points),
    )


def phtps(draw: PerturbationDraw, size: tuple[int, int], config: Perturb) -> Perturbation:
    """T^G ∘ T^P, the paper's perturbation."""
    return compose(ph(draw, size, config), tps(draw, size, config))


PERTURBATIONS: dict[str, Callable[[PerturbationDraw, tuple[int, int], Perturb], Perturbation]] = {
    "ph": ph,
    "tps": tps,
    "phtps": phtps,
}
