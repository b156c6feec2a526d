"""Pascal VOC: masks in colours, the list of them, and the table of colours. They are exact, specks and all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from oneway.common.words import visible
from oneway.data.dataset import Colour
from oneway.data.decode.regions import undrawn_class
from oneway.data.folder.classes import default_colours
from oneway.data.pictures import encoded, palette
from oneway.tools.annotations.interface import Files, Picture, Scheme

images = "JPEGImages"
BACKGROUND = "background"
BLACK: Colour = (0, 0, 0)


def describe(picture: Picture, scheme: Scheme, folder: Path) -> tuple[Files, str]:
    """The mask of an image: 0 is background, and the classes follow in their order."""
    table = np.zeros(256, dtype=np.uint8)
    table[list(scheme.wanted)] = np.arange(1, len(scheme.wanted) + 1)
    mask = Image.fromarray(table[picture.labels])
    mask.putpalette(palette(distinct_colours(scheme)).tobytes())
    return {f"SegmentationClass/{picture.stem}.png": encoded(mask, "PNG")}, visible(picture.stem, lines=False)


def gather(parts: Sequence[str], scheme: Scheme) -> Files:
    """The list, and what the colours stand for; a colon in a name would end it there, and becomes a dash."""
    names = [BACKGROUND, *(name.replace(":", "-") for name in scheme.names)]
    lines = (
        f"{name}:{','.join(map(str, colour))}::\n" for name, colour in zip(names, distinct_colours(scheme), strict=True)
    )
    return {
        "ImageSets/Segmentation/train.txt": "".join(f"{stem}\n" for stem in parts).encode(),
        "labelmap.txt": ("# label:color_rgb:parts:actions\n" + "".join(lines)).encode(),
    }


def describe_classes(scheme: Scheme) -> dict[str, Any]:
    """What a `dataset.yaml` says about the masks: all classes in the model's order; black is ignored if it is none."""
    black, *colours = distinct_colours(scheme)
    found = dict(zip(scheme.wanted, colours, strict=True))
    left_out = [index for index in range(len(scheme.classes)) if index not in found]
    unused = (colour for colour in default_colours(tuple(scheme.classes) * 2) if colour not in (black, *colours))
    undrawn = undrawn_class(scheme.classes)
    found |= {index: black if index == undrawn else next(unused) for index in left_out}
    ignored: dict[str, Any] = {} if left_out else {"ignore": [[*black]]}
    return {"classes": {name: [*found[index]] for index, name in enumerate(scheme.classes)}} | ignored


def distinct_colours(scheme: Scheme) -> list[Colour]:
    """Black for the background, and those of the classes; others where two would be the same."""
    wanted = [scheme.colours[index] for index in scheme.wanted]
    if len({BLACK, *wanted}) <= len(wanted):
        wanted = list(default_colours(tuple(f"{number}" for number in range(len(wanted)))))
    return [BLACK, *wanted]
