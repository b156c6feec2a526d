"""Settings of a preset that depend on the images at hand."""

from __future__ import annotations

import os

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.words import say
from oneway.config import Config
from oneway.config.recipes import recipe
from oneway.data import list_files
from oneway.data.cache.unpack import unpacked
from oneway.data.decode.images import image_size
from oneway.data.folder.files import find

STEP = 32
"""Pixels of an image that a cell of the coarsest features stands for."""

LOOKED_AT = 400
"""Images whose headers are read at most, spread over all."""


def fit_crops(config: Config, console: Console) -> Config:
    """`--preset best` with square crops that nine of ten training images hold, and says so: larger ones show grey.

    They are multiples of `STEP`, and never smaller than the recipe's. Where the images are not there, nothing changes:
    training says so itself.
    """
    (usual, _), (asked, _) = recipe(config.recipe).jitter.crop or (0, 0), config.jitter.crop or (0, 0)
    if config.data.path is None or not config.data.path.exists():
        return config
    data = unpacked(config.data, console)
    assert data.path is not None
    found = find(data.path) if data.name == "folder" else list_files(data)  # without looking into every mask
    files = [item.image for item in found.train]
    sides = []
    for file in files[:: len(files) // LOOKED_AT + 1]:
        try:
            sides.append(min(image_size(file)))  # large ones keep more pixels than the preset asks for
        except UserError:  # training refuses it, or leaves it out, and says so
            continue
    shorter = sorted(sides)[len(sides) // 10] if sides else asked
    fitting = max(usual, shorter // STEP * STEP)
    if fitting >= asked:
        return config
    if int(os.environ.get("RANK", 0)) == 0:  # the first of several processes speaks for all
        say(
            console,
            f"Note: --preset best takes crops of {fitting}×{fitting} here, not {asked}×{asked}: many images have "
            f"{shorter} pixels or fewer on their shorter side. Others: --jitter.crop.",
        )
    return config.changed(jitter={"crop": (fitting, fitting)})
