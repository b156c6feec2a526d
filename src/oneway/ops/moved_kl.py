"""KL divergence of a prediction from a moved target, from the logits of both.

Kernels make no full-resolution tensor of classes. Where predictions are warped, a target is a bilinear mixture of the
teacher's probabilities at four neighbouring pixels, and each of those is a softmax of a bilinear mixture of logits:
together they draw on 3×3 cells. With CutMix, a pixel inside the rectangle has its target from the partner image.

Shapes: N images of H×W pixels, C classes, logits at h×w.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from oneway.ops.backend import tl, triton
from oneway.ops.cells import (
    LN_2,
    PADDING,
    Shape,
    corner_of,
    interval_of,
    intervals_of_program,
    kernel_upsamples,
    log_sum_exp,
    maximum_and_log_sum_exp,
    pad_logits,
    share_of_second,
    upsampled,
)
from oneway.ops.cutmix import edges
from oneway.ops.gradient import PartialSums, mean_loss, store_contributions, store_sums
from oneway.ops.losses import Pixels, masked_kl, upsample
from oneway.ops.warp import Warp, neighbours, source_of, wholly_inside

if TYPE_CHECKING:
    from oneway.draws import Boxes

TINY = tl.constexpr(1.1754943508222875e-38)


class Geometry(NamedTuple):
    """What moves a prediction, in the form that kernels take: a warp, or CutMix, or nothing."""

    warp: Warp | None = None
    boxes: Boxes | None = None

    @property
    def still(self) -> bool:
        """Whether nothing moves."""
        return self.warp is None and self.boxes is None


STILL = Geometry()


class Moves(Protocol):
    """What a perturbation does to predictions; see `perturb.Perturbation`."""

    def prediction(self, p: Tensor) -> Tensor:
        """N×C×H×W moved; N×C predictions for whole images may be mixed, but not moved."""

    @property
    def valid(self) -> Tensor | None:
        """N×H×W, which pixels show a part of the image; None: all of them."""

    @property
    def geometry(self) -> Geometry | None:
        """`prediction` and `valid` in the form that kernels take; None where they cannot take it."""


def moved_kl(
    target_logits: Tensor, logits: Tensor, moves: Moves, pixels: Pixels, by_confidence: bool = False
) -> Tensor:
    """Mean over valid pixels of KL(moved(softmax(target_logits)) ‖ softmax(logits)) at H×W `pixels`.

    Args:
        target_logits: N×C×h×w logits, or N×C.
        logits: Likewise, of the perturbed images.
        moves: How the target is moved, and which pixels are then valid.
        pixels: H and W.
        by_confidence: Multiply a pixel's divergence by the target's confidence (its largest probability), without a
            gradient through that factor; how many pixels count stays the same.
    """
    geometry = moves.geometry
    one_way = not target_logits.requires_grad  # the kernel has a gradient for `logits` only
    known = geometry is not None and not (by_confidence and geometry.warp is not None)
    upsamples = all(kernel_upsamples(each, pixels) for each in (target_logits, logits))
    if geometry is not None and known and one_way and upsamples:
        return moved_kl_by_kernel(target_logits, logits, pixels, geometry, by_confidence)
    target, valid = moved(target_logits, moves, pixels)
    return masked_kl(target, logits, valid, target.detach().amax(dim=1) if by_confidence else None)


def moved(logits: Tensor, moves: Moves, pixels: Pixels) -> tuple[Tensor, Tensor | None]:
    """A prediction at H×W pixels, moved: N×C×H×W probabilities, and which pixels are valid (None: all)."""
    target = moves.prediction(upsample(logits, pixels).softmax(dim=1))
    return target, moves.valid if target.ndim == 4 else None


def moved_kl_by_kernel(
    target_logits: Tensor, logits: Tensor, pixels: Pixels, geometry: Geometry = STILL, by_confidence: bool = False
) -> Tensor:
    """`moved_kl` by kernels: the target must be of pixels, without a gradient, and not warped if `by_confidence`."""
    shape = Shape.of(logits, pixels)
    partial_sums = PartialSums.empty(len(logits), shape, logits.device)
    grid, constants = shape.grid(len(logits)), shape.constants()
    padded_t, padded_s = pad_logits(target_logits.detach()), pad_logits(logits.detach())
    if geometry.warp is None:
        # What is absent is never read, but a kernel wants a pointer.
        boxes = padded_t if geometry.boxes is None else edges(geometry.boxes, pixels).float()
        flags = {"CUTMIX": geometry.boxes is not None, "CONFIDENCE": by_confidence}
        _divergence[grid](padded_t, padded_s, boxes, len(boxes), *partial_sums, **flags, **constants)
    else:
        normalisers = torch.empty(len(target_logits), *pixels, device=logits.device)
        _normalise[grid](padded_t, normalisers, **constants)
        warp = geometry.warp.arguments()
        _warped_divergence[grid](padded_t, normalisers, *warp, padded_s, *partial_sums, **constants)
    return mean_loss(logits, partial_sums)


@triton.jit
def _divergence(
    padded_t,
    padded_s,
    boxes,
    pairs,
    contributions,
    sums,
    CUTMIX: tl.constexpr,
    CONFIDENCE: tl.constexpr,
    C: tl.constexpr,
    h: tl.constexpr,
    w: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    INTERVALS: tl.constexpr,
):
    n, row, column, y, x, exists, share_down, share_right = intervals_of_program(h, w, H, W, DOWN, RIGHT, INTERVALS)
    source = _image_of(n, y, x, boxes, pairs) if CUTMIX else n
    teacher = corner_of(padded_t, source, row, column, C, h, w, RIGHT)
    student = corner_of(padded_s, n, row, column, C, h, w, RIGHT)
    highest, normaliser_t = maximum_and_log_sum_exp(teacher, share_down, share_right, C, h, w)
    normaliser = log_sum_exp(student, share_down, share_right, C, h, w)
    factor = tl.exp2(highest - normaliser_t) if CONFIDENCE else 1.0
    loss = tl.zeros_like(normaliser)
    contributions += (n * C * (h + 1) + row) * 4 * (w + 1)
    for _ in range(C):
        log_target = upsampled(teacher, share_down, share_right, w) - normaliser_t
        log_prediction = upsampled(student, share_down, share_right, w) - normaliser
        target = tl.exp2(log_target)
        loss += target * (log_target - log_prediction)
        gradient = tl.where(exists, factor * (tl.exp2(log_prediction) - target), 0)
        store_contributions(contributions, gradient, share_down, share_right, column, w, RIGHT)
        teacher += (h + PADDING) * (w + PADDING)
        student += (h + PADDING) * (w + PADDING)
        contributions += (h + 1) * 4 * (w + 1)
    store_sums(sums, tl.where(exists, factor * loss, 0) * LN_2, exists)


@triton.jit
def _image_of(n, y, x, boxes, pairs):
    """The image that a pixel comes from: n itself, or its partner inside the rectangle of their pair."""
    pair = tl.where(n < pairs, n, n - pairs)
    paired = n < 2 * pairs
    top, bottom = tl.load(boxes + 4 * pair, paired, other=0), tl.load(boxes + 4 * pair + 1, paired, other=0)
    left, right = tl.load(boxes + 4 * pair + 2, paired, other=0), tl.load(boxes + 4 * pair + 3, paired, other=0)
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    return tl.where(inside, tl.where(n < pairs, n + pairs, n - pairs), n)


@triton.jit
def _normalise(
    padded,
    normalisers,
    C: tl.constexpr,
    h: tl.constexpr,
    w: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    INTERVALS: tl.constexpr,
):
    """Write log₂ Σ 2^logit of each pixel, the normaliser of its softmax."""
    n, row, column, y, x, exists, share_down, share_right = intervals_of_program(h, w, H, W, DOWN, RIGHT, INTERVALS)
    corner = corner_of(padded, n, row, column, C, h, w, RIGHT)
    normaliser = log_sum_exp(corner, share_down, share_right, C, h, w)
    tl.store(normalisers + (n * H + y) * W + x, normaliser, exists)


@triton.jit
def _warped_divergence(
    padded_t,
    normalisers,
    basis,
    displacements,
    padded_s,
    contributions,
    sums,
    C: tl.constexpr,
    h: tl.constexpr,
    w: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    INTERVALS: tl.constexpr,
):
    n, row, column, y, x, exists, share_down, share_right = intervals_of_program(h, w, H, W, DOWN, RIGHT, INTERVALS)
    student = corner_of(padded_s, n, row, column, C, h, w, RIGHT)
    normaliser = log_sum_exp(student, share_down, share_right, C, h, w)

    source_y, source_x = source_of(n, y, x, exists, basis, displacements, W)
    valid = exists & wholly_inside(source_y, source_x, H, W)
    above, below, blend_down = neighbours(source_y, H)
    left, right, blend_right = neighbours(source_x, W)
    cell_y, share_above, first_y, second_y, third_y = _taps(above, below, H, h)
    cell_x, share_left, first_x, second_x, third_x = _taps(left, right, W, w)
    teacher = padded_t + n * C * (h + PADDING) * (w + PADDING) + cell_y * (w + PADDING) + cell_x

    # A corner's part of the target is weight · 2^(logit − normaliser) = 2^(logit + bias).
    normalisers += n * H * W
    bias_above_left = _log(1 - blend_down, 1 - blend_right) - tl.load(normalisers + above * W + left)
    bias_above_right = _log(1 - blend_down, blend_right) - tl.load(normalisers + above * W + right)
    bias_below_left = _log(blend_down, 1 - blend_right) - tl.load(normalisers + below * W + left)
    bias_below_right = _log(blend_down, blend_right) - tl.load(normalisers + below * W + right)

    loss = tl.zeros_like(normaliser)
    contributions += (n * C * (h + 1) + row) * 4 * (w + 1)
    for _ in range(C):
        above_0, below_0 = _mixed_down(teacher, share_above, first_y, second_y, third_y, w)
        above_1, below_1 = _mixed_down(teacher + 1, share_above, first_y, second_y, third_y, w)
        above_2, below_2 = _mixed_down(teacher + 2, share_above, first_y, second_y, third_y, w)
        target = tl.exp2(above_0 + (above_1 - above_0) * share_left + bias_above_left)
        target += tl.exp2(above_0 * first_x + above_1 * second_x + above_2 * third_x + bias_above_right)
        target += tl.exp2(below_0 + (below_1 - below_0) * share_left + bias_below_left)
        target += tl.exp2(below_0 * first_x + below_1 * second_x + below_2 * third_x + bias_below_right)

        log_prediction = upsampled(student, share_down, share_right, w) - normaliser
        loss += target * (tl.log2(tl.maximum(target, TINY)) - log_prediction)
        gradient = tl.where(valid, tl.exp2(log_prediction) - target, 0)
        store_contributions(contributions, gradient, share_down, share_right, column, w, RIGHT)
        teacher += (h + PADDING) * (w + PADDING)
        student += (h + PADDING) * (w + PADDING)
        contributions += (h + 1) * 4 * (w + 1)
    store_sums(sums, tl.where(valid, loss, 0) * LN_2, valid)


@triton.jit
def _taps(before, behind, LENGTH: tl.constexpr, CELLS: tl.constexpr):
    """The first of three cells that two neighbouring pixels draw on, and what they take.

    The first pixel takes a share of the second cell and the rest of the first; the second has a weight for each.
    """
    interval, next_interval = interval_of(before, LENGTH, CELLS), interval_of(behind, LENGTH, CELLS)
    share = share_of_second(behind, next_interval, LENGTH, CELLS)
    same = interval == next_interval
    first, second, third = tl.where(same, 1 - share, 0), tl.where(same, share, 1 - share), tl.where(same, 0, share)
    return interval, share_of_second(before, interval, LENGTH, CELLS), first, second, third


@triton.jit
def _mixed_down(cells, share, first, second, third, w: tl.constexpr):
    """Logits above and below, of the column of three cells that `cells` points at the top of."""
    top = tl.load(cells)
    middle = tl.load(cells + w + PADDING)
    bottom = tl.load(cells + 2 * (w + PADDING))
    return top + (middle - top) * share, top * first + middle * second + bottom * third


@triton.jit
def _log(down, right):
    return tl.log2(tl.maximum(down * right, TINY))
