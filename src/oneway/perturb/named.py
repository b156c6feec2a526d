"""The perturbations by name, built from the table of draws.

Shapes: N images of H×W pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from oneway import ops
from oneway.draws import PerturbationDraw
from oneway.perturb.perturbation import (
    AdditiveNoise,
    ColourJitter,
    CutMix,
    Cutout,
    Perturbation,
    PhTPS,
    RandomIntensity,
    compose,
)

if TYPE_CHECKING:
    from oneway.config import Perturb
    from oneway.draws import Photometric
    from oneway.methods import PerturbationName


def perturbation(names: Sequence[PerturbationName], draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """Perturbations for a batch x of N×3×H×W images (or N points), one after another."""
    return compose(*(PERTURBATIONS[name](draw, x, config) for name in names))


def ph(draw: PerturbationDraw, x: Tensor, config: Perturb) -> PhTPS:
    """T^P at strength s_P: colours change, predictions should not."""
    return PhTPS(_colours(draw, config), None)


def tps(draw: PerturbationDraw, x: Tensor, config: Perturb) -> PhTPS:
    """T^G at strength s_G: images and predictions are warped alike."""
    return PhTPS(None, _warp(draw, x, config))


def phtps(draw: PerturbationDraw, x: Tensor, config: Perturb) -> PhTPS:
    """T^G ∘ T^P, the paper's perturbation."""
    return PhTPS(_colours(draw, config), _warp(draw, x, config))


def colour(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """Colour jitter with random grey and blur: gentler than T^P, since channels keep their order."""
    return ColourJitter(draw.colours, config.colour)


def augseg(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """One to three random operations on the colours, or on their sharpness."""
    return RandomIntensity(draw.intensities)


def cutmix(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """Pairs of images exchange a rectangle of half their area, and so do their predictions."""
    return CutMix(draw.boxes)


def boxes(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """CutMix as FixMatch for segmentation and UniMatch have it: in half of the pairs, a smaller rectangle."""
    return CutMix(draw.small_boxes)


def cutout(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """A grey square, with sides of up to half the image's."""
    return Cutout(draw.squares)


def noise(draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """Additive Gaussian noise."""
    return AdditiveNoise(config.noise * draw.noise.to(x.dtype))


PERTURBATIONS: dict[PerturbationName, Callable[[PerturbationDraw, Tensor, Perturb], Perturbation]] = {
    "ph": ph,
    "tps": tps,
    "phtps": phtps,
    "colour": colour,
    "augseg": augseg,
    "cutmix": cutmix,
    "boxes": boxes,
    "cutout": cutout,
    "noise": noise,
}


def _colours(draw: PerturbationDraw, config: Perturb) -> Photometric | None:
    """The parameters of T^P; None at strength 0, so that images stay the same to the bit."""
    return ops.with_strength(draw.photometric, config.photometric) if config.photometric > 0 else None


def _warp(draw: PerturbationDraw, x: Tensor, config: Perturb) -> ops.Warp:
    """A warp whose displacements have a standard deviation of s_G · deviation · H pixels."""
    height, width = x.shape[-2:]
    deviation = config.geometric * config.deviation * height
    return ops.Warp(deviation * draw.displacements.to(x.dtype), height, width, config.control)
