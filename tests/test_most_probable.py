"""Facts about classes of pixels without logits at full size, against PyTorch's interpolation followed by its argmax.

Those of the kernel are checked in a process of their own, as in `test_kernels`.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kernel_facts import DEVICE, assert_facts
from oneway.ops import most_probable as op
from oneway.ops.most_probable import bands, most_probable, most_probable_by_kernel, upsample_rows

EXACT = {
    "stride 4, several bands": ((1, 19, 35, 65), (140, 260)),
    "stride 8, two images": ((2, 3, 20, 33), (160, 264)),
    "as many cells as pixels": ((1, 5, 33, 41), (33, 41)),
    "a width that no stride divides": ((1, 11, 40, 33), (160, 130)),
    "a height that no stride divides": ((1, 4, 9, 33), (33, 130)),
    "fewer pixels than cells": ((1, 3, 20, 20), (10, 10)),
    "one class": ((1, 1, 4, 4), (16, 16)),
}


def random_logits(shape: tuple[int, ...], channels_last: bool = True) -> Tensor:
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    return logits.contiguous(memory_format=torch.channels_last) if channels_last else logits


def by_pytorch(logits: Tensor, pixels: tuple[int, int]) -> Tensor:
    return F.interpolate(logits.double(), pixels, mode="bilinear", align_corners=False)


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("channels_last", [True, False])
def test_classes_are_pytorchs_to_the_pixel(case, channels_last, monkeypatch):
    """In bands of few rows; probabilities to rounding."""
    monkeypatch.setattr(op, "BAND", 4000)
    (shape, pixels), logits = EXACT[case], random_logits(EXACT[case][0], channels_last)
    expected = F.interpolate(logits, pixels, mode="bilinear", align_corners=False)
    classes, confidence = most_probable(logits, pixels)
    alone, nothing = most_probable(logits, pixels, confidence=False)
    assert torch.equal(alone, classes)
    assert nothing.shape == (len(logits), 0)
    assert torch.equal(classes, expected.argmax(dim=1).byte())
    torch.testing.assert_close(confidence, expected.softmax(dim=1).amax(dim=1), atol=1e-6, rtol=1e-5)
    if case.startswith("stride"):
        assert len(list(bands(shape[1], shape[2], pixels))) > 5


@pytest.mark.parametrize(("cells", "height"), [(25, 97), (13, 50), (7, 31), (20, 10), (9, 9), (12, 48)])
def test_any_rows_can_be_upsampled_from_the_cells_that_they_need(cells, height):
    """Band after band, of a window of the logits, against the whole in double precision; also of ratios like 3.88."""
    logits, pixels = random_logits((1, 3, cells, 11)), (height, 40)
    whole = by_pytorch(logits, pixels)
    step = max(1, height // cells)
    for top in range(0, height, step):
        bottom = min(height, top + step)
        first = max(0, top * cells // height - 1)
        last = bottom * cells // height + 2
        found = upsample_rows(logits[:, :, first:last], pixels, top, bottom, first, cells)
        torch.testing.assert_close(found.double(), whole[:, :, top:bottom], atol=1e-5, rtol=1e-5)


def test_large_images_of_odd_height_take_bands_too(monkeypatch):
    """Classes differ from PyTorch's only where two are as good as equal."""
    monkeypatch.setattr(op, "AT_ONCE", 1000)
    monkeypatch.setattr(op, "BAND", 4000)
    logits, pixels = random_logits((1, 11, 33, 40)), (131, 160)
    assert len(list(bands(11, 33, pixels))) > 10
    assert_same_but_for_ties(most_probable(logits, pixels), logits, pixels)


@pytest.mark.slow
def test_the_kernel_facts_hold():
    """Everything below."""
    assert_facts(__file__, "fact_")


KERNEL = {
    "stride 4, two images": ((2, 3, 3, 4), (12, 16)),
    "sides that no stride divides": ((1, 11, 3, 5), (9, 17)),
    "as many cells as pixels": ((1, 5, 3, 7), (3, 7)),
    "more columns than a program takes": ((1, 200, 2, 18), (6, 72)),
    "a large ratio": ((1, 3, 1, 2), (7, 33)),
    "fewer pixels than cells": ((1, 3, 9, 9), (5, 5)),
    "one class": ((1, 1, 2, 2), (8, 8)),
}


@pytest.mark.parametrize("case", KERNEL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def fact_the_kernel_finds_the_same_classes(case, dtype):
    """Up to ties; of logits in half precision, too."""
    shape, pixels = KERNEL[case]
    logits = random_logits(shape).to(dtype)
    assert_same_but_for_ties(most_probable_by_kernel(logits, pixels), logits, pixels)


def fact_the_first_of_equal_classes_wins():
    """As in PyTorch."""
    classes, confidence = most_probable_by_kernel(torch.zeros(1, 5, 3, 3, device=DEVICE), (12, 12))
    assert not classes.any()
    torch.testing.assert_close(confidence, torch.full_like(confidence, 0.2))


def fact_the_kernel_is_taken_where_there_is_one():
    """By the function that everyone calls."""
    logits = random_logits((1, 4, 3, 3))
    assert all(
        torch.equal(*pair)
        for pair in zip(most_probable(logits, (12, 12)), most_probable_by_kernel(logits, (12, 12)), strict=True)
    )


def assert_same_but_for_ties(found: tuple[Tensor, Tensor], logits: Tensor, pixels: tuple[int, int]) -> None:
    classes, confidence = found
    expected = by_pytorch(logits, pixels)
    chosen = expected.gather(1, classes.long()[:, None])[:, 0]
    assert (expected.amax(dim=1) - chosen).max() < 1e-5
    assert (classes == expected.argmax(dim=1)).double().mean() > 0.995
    torch.testing.assert_close(confidence.double(), expected.softmax(dim=1).amax(dim=1), atol=1e-5, rtol=1e-4)
