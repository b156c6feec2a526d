"""Whether an exported file does what the network does.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.data.streets import render
from oneway.models.reduced import factor_of
from oneway.ops.losses import pixels_of, upsample
from oneway.tools.evaluate import as_input
from oneway.tools.export.formats import Opened
from oneway.tools.export.graph import explain_error

BATCHES = ((1, 64, 128), (2, 97, 131), (1, 160, 96))
"""Number, height and width of the images that are compared: wide, odd, and tall."""

SAME_CLASS = 0.999
RELATIVE_DIFFERENCE = 1e-3
"""The largest difference that is accepted, relative to the largest logit; single precision leaves about 1e-6."""


@dataclass(frozen=True)
class Agreement:
    """How a file compares with the network."""

    same_class: float  # share of pixels
    difference: float  # largest, of a logit
    largest: float  # of the logits
    factor: int = 1  # how many times larger than `BATCHES` the images were, and a little more

    def __str__(self) -> str:
        sizes = ", ".join(f"{height}×{width}" for _, height, width in batches(self.factor))
        return (
            f"{100 * self.same_class:.3f} % of pixels have the class that PyTorch gives them; the largest difference "
            f"of a logit is {self.difference:.1e}, of logits up to {self.largest:.1f} ({sizes})"
        )


def batches(factor: int) -> list[tuple[int, int, int]]:
    """The shapes to compare at; for a network that reduces images, larger ones, and no multiples of its factor."""
    return [(count, height * factor + factor // 2, width * factor + factor // 2) for count, height, width in BATCHES]


@torch.inference_mode()
def compare(network: nn.Module, file: Opened) -> Agreement:
    """A file's results and logits against the network's, on street scenes of three sizes."""
    same: list[Tensor] = []
    difference = largest = 0.0
    factor = factor_of(network)
    for count, height, width in batches(factor):
        images = torch.from_numpy(np.stack([render(0, index, height, width)[0] for index in range(count)]))
        x = as_input(images)
        expected = upsample(network(x), pixels_of(x))
        try:
            found, found_logits = file.result(images), file.logits(images)
        except Exception as error:  # each runtime has its own
            raise UserError(
                f"The exported file fails on {count} images of {height}×{width} pixels ({explain_error(error)})."
            ) from error
        labels = found.argmax(dim=1) if found.is_floating_point() else found
        if found_logits.shape != expected.shape or labels.shape != expected.argmax(dim=1).shape:
            raise UserError(
                f"The exported file gives {list(found.shape)} for {count} images of {height}×{width} pixels."
            )
        same.append((labels == expected.argmax(dim=1)).flatten())
        gap = float((found_logits - expected).abs().max())
        difference = max(difference, gap) if np.isfinite(gap) else np.inf
        largest = max(largest, float(expected.abs().max()))
    return Agreement(float(torch.cat(same).float().mean()), difference, largest, factor)


def refuse_difference(found: Agreement) -> None:
    """Raise a UserError where a file is not what the network is."""
    if found.same_class < SAME_CLASS or not found.difference <= RELATIVE_DIFFERENCE * max(1.0, found.largest):
        raise UserError(f"The exported file does not do what the network does: {found}.")
