"""Boxes and ellipses that annotation tools let one turn: drawn as Pillow turns what was drawn upright."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.folders import listing, photo, write

SIZE = (60, 100)  # oblong: percents are shorter upwards than to the side
ANGLES = (40.0, 90.0, 200.0, 350.5)

Shape = tuple[str, tuple[float, float, float, float]]  # left, top, width, height, in pixels, before it is turned


def cvat(root: Path, shape: Shape, degrees: float) -> tuple[float, float]:
    """As CVAT exports it; the point about which CVAT turns."""
    kind, (left, top, width, height) = shape
    centre = left + width / 2, top + height / 2
    if kind == "box":
        place = f'xtl="{left}" ytl="{top}" xbr="{left + width}" ybr="{top + height}"'
    else:
        place = f'cx="{centre[0]}" cy="{centre[1]}" rx="{width / 2}" ry="{height / 2}"'
    drawn = f'<{kind} label="row" {place} rotation="{degrees}" z_order="0"></{kind}>'
    images = "".join(f'<image name="{name}.jpg" width="100" height="60">{drawn}</image>' for name in "ab")
    labels = "<meta><job><labels><label><name>row</name></label></labels></job></meta>"
    write(root / "annotations.xml", f"<annotations><version>1.1</version>{labels}{images}</annotations>")
    return centre


def label_studio(root: Path, shape: Shape, degrees: float) -> tuple[float, float]:
    """As Label Studio exports it; the point about which it turns, which of a rectangle is the upper left corner."""
    kind, (left, top, width, height) = shape
    x, y = (left, top) if kind == "box" else (left + width / 2, top + height / 2)
    value = {"x": x, "y": y / 0.6, "rotation": degrees}
    if kind == "box":
        label, value = "rectanglelabels", value | {"width": width, "height": height / 0.6}
    else:
        label, value = "ellipselabels", value | {"radiusX": width / 2, "radiusY": height / 2 / 0.6}
    size = {"original_width": 100, "original_height": 60}
    result = [size | {"type": label, "value": value | {label: ["row"]}}]
    tasks = [{"data": {"image": f"{name}.jpg"}, "annotations": [{"result": result}]} for name in "ab"]
    write(root / "project.json", json.dumps(tasks))
    return x, y


@pytest.mark.parametrize("tool", [cvat, label_studio])
@pytest.mark.parametrize("shape", [("box", (40, 26, 30, 8)), ("ellipse", (30, 24, 40, 12))])
@pytest.mark.parametrize("degrees", ANGLES)
def test_they_are_drawn_turned_clockwise(tmp_path, tool, shape, degrees):
    """But for pixels on the border, of which there are about 90; another angle or point moves hundreds."""
    maps = []
    for folder, angle in (("upright", 0.0), ("turned", degrees)):
        for name in "ab":
            photo(tmp_path / folder / "images" / f"{name}.jpg", size=SIZE)
        point = tool(tmp_path / folder, shape, angle)
        found = listing(tmp_path / folder)
        assert not [remark for remark in found.remarks if "left out" in remark]
        maps.append(found.read_labels(found.val[0]))
    upright, turned = maps
    assert upright.sum() == pytest.approx(240 if shape[0] == "box" else 377, abs=5)
    expected = np.asarray(Image.fromarray(upright).rotate(-degrees, center=point))
    assert (turned != expected).sum() <= 24
    assert not np.array_equal(turned, upright)
