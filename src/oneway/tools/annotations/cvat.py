"""CVAT for images 1.1: one XML file. Polygons; masks for what has holes, since polygons have none there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from oneway.common.words import visible
from oneway.tools.annotations.interface import Files, Picture, Scheme
from oneway.tools.annotations.regions import Region, runs

images = "images"
FILE = "annotations.xml"


def describe(picture: Picture, scheme: Scheme, folder: Path) -> tuple[Files, str]:
    """The element of an image, from behind its number."""
    height, width = picture.size
    shapes = "".join(f"    {_shape(region, scheme)}\n" for region in picture.regions)
    name = quoteattr(visible(picture.name, lines=False))
    return {}, f'name={name} width="{width}" height="{height}">\n{shapes}  </image>\n'


def gather(parts: Sequence[str], scheme: Scheme) -> Files:
    """All in one file."""
    labels = "".join(
        f"<label><name>{escape(scheme.classes[index])}</name><color>{scheme.hex_colour(index)}</color>"
        "<attributes></attributes></label>\n"
        for index in scheme.wanted
    )
    pictures = "".join(f'  <image id="{number}" {part}' for number, part in enumerate(parts))
    text = (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n'
        f"  <meta><task><size>{len(parts)}</size><mode>annotation</mode><labels>\n{labels}</labels></task></meta>\n"
        f"{pictures}</annotations>\n"
    )
    return {FILE: text.encode()}


def _shape(region: Region, scheme: Scheme) -> str:
    common = f'label={quoteattr(scheme.classes[region.label])} source="auto" occluded="0"'
    if scheme.tolerance and len(region.rings) == 1:
        points = ";".join(f"{x:.2f},{y:.2f}" for x, y in region.rings[0])
        return f'<polygon {common} points="{points}" z_order="0"/>'
    left, top, width, height = region.box
    counts = ", ".join(map(str, runs(region.mask().reshape(-1))))
    place = f'left="{left}" top="{top}" width="{width}" height="{height}"'
    return f'<mask {common} rle="{counts}" {place} z_order="0"/>'
