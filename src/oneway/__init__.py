"""Train real-time segmentation models from a few labelled and many unlabelled images."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from oneway.predict import Predictor

__version__ = "0.1.0"


def load(run: str | PathLike[str], device: str = "auto", factory: str | None = None) -> Predictor:
    """A trained model, ready to use: `oneway.load("runs/x").predict("image.jpg").save("mask.png")`.

    Args:
        run: A run folder, or its model.safetensors.
        device: `auto` takes the GPU where there is one; else `cpu`, `cuda`, `cuda:1`, …
        factory: The `model.factory` that you agree to run, where the model names one.
    """
    from oneway import predict  # torch takes seconds to import

    return predict.load(run, device, factory)
