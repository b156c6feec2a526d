"""A server for runs to explore, and its numbers computed a second time."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastapi import FastAPI
from PIL import Image

from oneway.draws import draw_perturbation
from oneway.ops.losses import masked_kl, pixels_of, upsample
from oneway.ops.photometric import photometric
from oneway.ops.warp import sampling_points, valid_points, warp
from oneway.runs import load_model
from oneway.tools.explore.compute import RANGES
from oneway.tools.explore.limits import Limits
from oneway.tools.explore.server import PageContent, application
from oneway.tools.local_server import listen, server

SAMPLE = "sample-2"
"""An image that the page offers."""

STRONG = {
    "brightness": 0.1,
    "saturation": 1.5,
    "hue": 0.06,
    "contrast": 0.8,
    "permutation": [2, 0, 1],
    "displacements": [[0.05, 0.02], [-0.04, 0.03], [0.02, -0.05], [0.06, 0.01]],
}


def serving(page_content: PageContent, limits: Limits) -> AbstractContextManager[str]:
    """The address of the page about some runs."""
    return address_of(application(page_content, limits))


@contextmanager
def address_of(page: FastAPI) -> Iterator[str]:
    """The address of an application, which a thread of its own serves."""
    serves = server(page)
    with listen(0) as listening:
        thread = threading.Thread(target=serves.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            serves.should_exit = True
            thread.join()


def by_hand(folder: Path, x: torch.Tensor, values: dict[str, Any]) -> float:
    """Mean KL of a model, from the functions that training uses, put together here a second time."""
    network = load_model(folder / "model.safetensors", torch.device("cpu")).network
    height, width = x.shape[-2:]
    points = sampling_points(height * torch.tensor([values["displacements"]]), height, width)
    colours = draw_perturbation(0, 0, 1).photometric._replace(
        permutation=torch.tensor([values["permutation"]]), **{name: torch.tensor([values[name]]) for name in RANGES}
    )
    with torch.no_grad():
        target = warp(upsample(network(x), pixels_of(x)).softmax(dim=1), points)
        return float(masked_kl(target, network(warp(photometric(x, colours), points)), valid_points(points)))


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()
