"""KL divergence between a warped teacher and a student, both upsampled, in one pass without a full-resolution tensor.

A target is a bilinear mixture of the teacher's probabilities at four neighbouring pixels, and each of those is a
softmax of a bilinear mixture of logits. Together they draw on 3×3 cells.

Shapes: N images of H×W pixels, C classes, logits at h×w.
"""

# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
# ruff: noqa: N803 (what a kernel is compiled for is upper case, and shapes are letters)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from oneway.kernels.gradient import Traces, mean, store_contributions, store_sums
from oneway.kernels.grid import (
    LN_2,
    PADDING,
    Shape,
    corner_of,
    framed,
    interval_of,
    intervals_of_program,
    log_sum_exp,
    share_of_second,
    upsampled,
)
from oneway.kernels.warp import Warp, neighbours, source_of, wholly_inside

TINY = tl.constexpr(1.1754943508222875e-38)


def fused_masked_kl(teacher: Tensor, student: Tensor, pixels: tuple[int, int], warp: Warp | None) -> Tensor:
    """`losses.masked_kl` of a teacher's probabilities, warped, and a student's logits, both N×C×h×w, at H×W `pixels`.

    The mean is over pixels whose sample lies wholly inside the image; without a warp, over all. Only the student has a
    gradient.
    """
    shape = Shape.of(student, pixels)
    traces = Traces.empty(len(student), shape, student.device)
    grid, constants = shape.grid(len(student)), shape.constants()
    frame_t, frame_s = framed(teacher.detach()), framed(student.detach())
    if warp is None:
        _divergence[grid](frame_t, frame_s, *traces, **constants)
    else:
        normalisers = torch.empty(len(teacher), *pixels, device=teacher.device)
        _normalise[grid](frame_t, normalisers, **constants)
        _warped_divergence[grid](frame_t, normalisers, *warp.arguments(), frame_s, *traces, **constants)
    return mean(student, traces)


@triton.jit
def _divergence(
    frame_t,
    frame_s,
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
    n, row, column, _, _, exists, share_down, share_right = intervals_of_program(h, w, H, W, DOWN, RIGHT, INTERVALS)
    teacher = corner_of(frame_t, n, row, column, C, h, w, RIGHT)
    student = corner_of(frame_s, n, row, column, C, h, w, RIGHT)
    normaliser_t = log_sum_exp(teacher, share_down, share_right, C, h, w)
    normaliser = log_sum_exp(student, share_down, share_right, C, h, w)
    loss = tl.zeros_like(normaliser)
    contributions += (n * C * (h + 1) + row) * 4 * (w + 1)
    for _ in range(C):
        log_target = upsampled(teacher, share_down, share_right, w) - normaliser_t
        log_second = upsampled(student, share_down, share_right, w) - normaliser
        target = tl.exp2(log_target)
        loss += target * (log_target - log_second)
        gradient = tl.where(exists, tl.exp2(log_second) - target, 0)
        store_contributions(contributions, gradient, share_down, share_right, column, w, RIGHT)
        teacher += (h + PADDING) * (w + PADDING)
        student += (h + PADDING) * (w + PADDING)
        contributions += (h + 1) * 4 * (w + 1)
    store_sums(sums, tl.where(exists, loss, 0) * LN_2, exists)


@triton.jit
def _normalise(
    frame,
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
    """log₂ Σ 2^logit for each pixel: what a softmax at any of them still needs."""
    n, row, column, y, x, exists, share_down, share_right = intervals_of_program(h, w, H, W, DOWN, RIGHT, INTERVALS)
    corner = corner_of(frame, n, row, column, C, h, w, RIGHT)
    normaliser = log_sum_exp(corner, share_down, share_right, C, h, w)
    tl.store(normalisers + (n * H + y) * W + x, normaliser, exists)


@triton.jit
def _warped_divergence(
    frame_t,
    normalisers,
    basis,
    displacements,
    frame_s,
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
    student = corner_of(frame_s, n, row, column, C, h, w, RIGHT)
    normaliser = log_sum_exp(student, share_down, share_right, C, h, w)

    source_y, source_x = source_of(n, y, x, exists, basis, displacements, W)
    valid = exists & wholly_inside(source_y, source_x, H, W)
    above, below, blend_down = neighbours(source_y, H)
    left, right, blend_right = neighbours(source_x, W)
    cell_y, share_above, first_y, second_y, third_y = _taps(above, below, H, h)
    cell_x, share_left, first_x, second_x, third_x = _taps(left, right, W, w)
    teacher = frame_t + n * C * (h + PADDING) * (w + PADDING) + cell_y * (w + PADDING) + cell_x

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

        log_second = upsampled(student, share_down, share_right, w) - normaliser
        loss += target * (tl.log2(tl.maximum(target, TINY)) - log_second)
        gradient = tl.where(valid, tl.exp2(log_second) - target, 0)
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
