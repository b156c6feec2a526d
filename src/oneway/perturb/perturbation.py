"""What a perturbation is: what happens to an image, to a prediction, which pixels stay valid, and the way back.

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
    """One draw for a batch. This one changes nothing; others say what they do otherwise."""

    valid: Tensor | None = None
    """N×H×W, whether a pixel of the result shows a part of the image; None where all do."""

    geometry: Geometry | None = Geometry()
    """What moves predictions, as kernels take it; None where they cannot."""

    def image(self, x: Tensor) -> Tensor:
        """What happens to images, N×3×H×W."""
        return x

    def prediction(self, p: Tensor) -> Tensor:
        """What happens to predictions for them."""
        return p

    def inverse(self) -> Perturbation:
        """Brings predictions for perturbed images back to the clean ones; of images it promises nothing."""
        return UNCHANGED

    def then(self, second: Perturbation) -> Perturbation:
        """This one, and another after it."""
        return Composed(self, second)


UNCHANGED = Perturbation()


@dataclass(frozen=True)
class PhTPS(Perturbation):
    """T^G ∘ T^P, the paper's perturbation, or one of its two: colours change, predictions do not; both are warped."""

    colours: Photometric | None
    warp: Warp | None

    @cached_property
    def valid(self) -> Tensor | None:  # type: ignore[override]
        return None if self.warp is None else self.warp.valid

    @property
    def geometry(self) -> Geometry:  # type: ignore[override]
        return Geometry(self.warp)

    def image(self, x: Tensor) -> Tensor:
        return ops.recolour_and_warp(x, self.colours, self.warp)

    def prediction(self, p: Tensor) -> Tensor:
        return p if self.warp is None or p.ndim < 4 else ops.warp(p, self.warp.points)

    def inverse(self) -> Perturbation:
        return UNCHANGED if self.warp is None else Unwarp(self.warp)


@dataclass(frozen=True)
class Unwarp(Perturbation):
    """Forward warping: predictions for a warped image are taken to where its pixels came from."""

    warp: Warp
    geometry = None

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
    """Colours change within what a camera could see; predictions should not."""

    colours: Colours
    strength: float

    def image(self, x: Tensor) -> Tensor:
        return ops.jitter_colours(x, self.colours, self.strength)


@dataclass(frozen=True)
class RandomIntensity(Perturbation):
    """A few of AugSeg's operations on colours, each of a random strength; predictions should not change."""

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
class Shift(Perturbation):
    """Something is added to the images; predictions should not change."""

    amount: Tensor  # of the images' shape

    def image(self, x: Tensor) -> Tensor:
        return x + self.amount


@dataclass(frozen=True)
class Composed(Perturbation):
    """One perturbation after another."""

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
        """Kernels know one move."""
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
    """All of them, the first first."""
    return reduce(Perturbation.then, parts) if parts else UNCHANGED


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
