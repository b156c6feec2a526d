"""Perturbations: their effect on images and on predictions, which pixels stay valid, and their inverse.

Shapes: N images of H×W pixels, C classes. A prediction is N×C×H×W, or N×C for a whole image: geometry does not touch
the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from torch import Tensor

from oneway import ops
from oneway.common.terms import IGNORE
from oneway.draws import Boxes, Colours, Intensities, Photometric, Squares
from oneway.ops import Geometry, Warp


class Perturbation:
    """A perturbation drawn for a batch. The base class is the identity; subclasses override what they change."""

    valid: Tensor | None = None
    """N×H×W: whether a pixel of the result is inside the image; None where all are."""

    geometry: Geometry | None = Geometry()
    """The movement of predictions in the form that kernels take; None where they cannot."""

    def __init_subclass__(cls) -> None:
        """Kernels would not see a movement that a subclass adds, unless it says how."""
        if vars(cls).keys() & {"prediction", "valid"} and "geometry" not in vars(cls):
            cls.geometry = None

    def image(self, x: Tensor) -> Tensor:
        """Perturb images, N×3×H×W."""
        return x

    def prediction(self, p: Tensor) -> Tensor:
        """Move predictions as the images were."""
        return p

    def inverse(self) -> Perturbation:
        """The perturbation that takes predictions of perturbed images back to the clean images; not for images."""
        return UNCHANGED

    def then(self, second: Perturbation) -> Perturbation:
        """This perturbation, followed by another."""
        return Composed(self, second)


UNCHANGED = Perturbation()


@dataclass(frozen=True)
class PhTPS(Perturbation):
    """T^G ∘ T^P, the paper's perturbation, or one of the two: T^P changes colours, T^G warps images and predictions."""

    colours: Photometric | None
    warp: Warp | None

    @cached_property
    def valid(self) -> Tensor | None:  # type: ignore[override]
        return None if self.warp is None else self.warp.valid

    @property
    def geometry(self) -> Geometry:  # type: ignore[override]
        return Geometry(self.warp)

    def image(self, x: Tensor) -> Tensor:
        return ops.phtps(x, self.colours, self.warp)

    def prediction(self, p: Tensor) -> Tensor:
        return p if self.warp is None or p.ndim < 4 else ops.warp(p, self.warp.points)

    def inverse(self) -> Perturbation:
        return UNCHANGED if self.warp is None else Unwarp(self.warp)


@dataclass(frozen=True)
class Unwarp(Perturbation):
    """The inverse of a warp, by forward warping: predictions go to where the pixels were sampled from."""

    warp: Warp

    @cached_property
    def valid(self) -> Tensor:  # type: ignore[override]
        points = self.warp.points
        return ops.splat(points.new_zeros(len(points), 1, self.warp.height, self.warp.width), points)[1]

    def prediction(self, p: Tensor) -> Tensor:
        return ops.splat(p, self.warp.points)[0] if p.ndim == 4 else p


@dataclass(frozen=True)
class CutMix(Perturbation):
    """Pairs of images exchange a rectangle, and so do their predictions; its own inverse.

    It serves both perturbations: `cutmix`, with rectangles of half the area, and `boxes`, with smaller ones.
    """

    boxes: Boxes

    @property
    def geometry(self) -> Geometry:  # type: ignore[override]
        return Geometry(boxes=self.boxes)

    def image(self, x: Tensor) -> Tensor:
        return ops.cutmix(x, self.boxes)

    def prediction(self, p: Tensor) -> Tensor:
        return ops.cutmix(p, self.boxes)

    def inverse(self) -> Perturbation:
        return self


@dataclass(frozen=True)
class ColourJitter(Perturbation):
    """Photographic colour jitter; predictions should not change."""

    colours: Colours
    strength: float

    def image(self, x: Tensor) -> Tensor:
        return ops.jitter_colours(x, self.colours, self.strength)


@dataclass(frozen=True)
class RandomIntensity(Perturbation):
    """One to three of AugSeg's intensity operations of random strength; predictions should not change."""

    intensities: Intensities

    def image(self, x: Tensor) -> Tensor:
        return ops.vary_intensity(x, self.intensities)


@dataclass(frozen=True)
class Cutout(Perturbation):
    """A square of each image becomes grey; predictions should not change."""

    squares: Squares

    def image(self, x: Tensor) -> Tensor:
        return torch.where(ops.square_mask(self.squares, ops.pixels_of(x))[:, None], 0.5, x)


@dataclass(frozen=True)
class AdditiveNoise(Perturbation):
    """Noise is added; predictions should not change."""

    noise: Tensor  # of the images' shape

    def image(self, x: Tensor) -> Tensor:
        return x + self.noise


@dataclass(frozen=True)
class Composed(Perturbation):
    """Two perturbations, one after the other."""

    first: Perturbation
    second: Perturbation

    @cached_property
    def valid(self) -> Tensor | None:  # type: ignore[override]
        before, added = self.first.valid, self.second.valid
        if before is None:
            return added
        kept = self.second.prediction(before[:, None].float())[:, 0] == 1
        return kept if added is None else kept & added

    @property
    def geometry(self) -> Geometry | None:  # type: ignore[override]
        """The movement of the only part that moves; None if both do, which kernels cannot take."""
        a, b = self.first.geometry, self.second.geometry
        if a is None or b is None:
            return None
        if a.still:
            return b
        return a if b.still else None

    def image(self, x: Tensor) -> Tensor:
        return self.second.image(self.first.image(x))

    def prediction(self, p: Tensor) -> Tensor:
        return self.second.prediction(self.first.prediction(p))

    def inverse(self) -> Perturbation:
        return self.second.inverse().then(self.first.inverse())


def compose(*parts: Perturbation) -> Perturbation:
    """One perturbation that applies all parts, in this order."""
    return reduce(Perturbation.then, parts) if parts else UNCHANGED


def perturb_labels(labels: Tensor, perturbation: Perturbation) -> Tensor:
    """Move N×H×W labels as predictions are moved, by the nearest pixel; IGNORE outside the image.

    Classes cannot be interpolated, but coordinates can: a perturbed map of positions (image, row, column) says which
    pixel each label comes from.
    """
    if labels.ndim == 1:
        return labels
    places = [torch.arange(size, dtype=torch.float64, device=labels.device) for size in labels.shape]
    positions = perturbation.prediction(torch.stack(torch.meshgrid(*places, indexing="ij"), dim=1))
    nearest = labels[positions.round().long().unbind(dim=1)]
    return nearest if perturbation.valid is None else torch.where(perturbation.valid, nearest, IGNORE)
