"""The stage on which a street scene is drawn: chance, camera, light, and a canvas that knows the class of each pixel.

The world is metric: x to the right, y up, z into the picture, the ground at y = 0. A `Camera` maps it to the screen,
whose unit is the picture's height, so that a scene does not depend on the picture's size; a `Canvas` paints each shape
into the picture and into the label map at once. `Cutout` and `Wall` are the two kinds of flat things there are: those
that face the camera and those that stand along the street.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from oneway.common.streams import stream

SKY, BUILDING, ROAD, PAVEMENT, TREE, CAR, PERSON, POLE, SIGN = range(9)
SUPERSAMPLING = 3  # odd, so that one sample lies at the very centre of its pixel: the one whose label counts
NEAREST = 0.8  # metres: what lies closer to the camera is drawn as if it lay there
THINNEST = 0.016  # of the picture's height: no post gets thinner, so that it survives at 64 rows

Item = TypeVar("Item")
Colour = tuple[float, float, float]
Palette = tuple[Colour, ...]
Point = tuple[float, float]  # on the screen: right of the centre, down from the top; on the ground: x and z

BLACK: Colour = (22, 22, 26)


class Dice:
    """The one source of chance of one picture: a counter-based stream, so no picture depends on another."""

    def __init__(self, seed: int, index: int) -> None:
        self.generator = stream(seed, "streets", index)
        self._rolls: list[float] = []

    def roll(self) -> float:
        """A number in [0, 1); they are drawn by the thousand, since a single draw costs almost as much."""
        if not self._rolls:
            self._rolls = self.generator.random(1024).tolist()
        return self._rolls.pop()

    def between(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * self.roll()

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.roll() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, all equally likely."""
        return items[int(self.roll() * len(items))]

    def near(self, colour: Colour, spread: float = 18.0) -> Colour:
        """The colour, somewhat lighter or darker, warmer or colder."""
        shift, warmth = self.between(-spread, spread), self.between(-spread, spread) / 3
        return colour[0] + shift + warmth, colour[1] + shift, colour[2] + shift - warmth

    def one_of(self, palette: Palette, spread: float = 18.0) -> Colour:
        """A colour near one of the palette's."""
        return self.near(self.pick(palette), spread)


@dataclass(frozen=True)
class Camera:
    """A pinhole: `vanishing` and `horizon` are where, on the screen, the gaze straight ahead ends."""

    x: float
    y: float
    focal: float
    vanishing: float
    horizon: float

    def project(self, x: float, y: float, z: float) -> Point:
        """Where on the screen a spot of the world appears."""
        scale = self.focal / (z if z > NEAREST else NEAREST)
        return self.vanishing + (x - self.x) * scale, self.horizon - (y - self.y) * scale


@dataclass(frozen=True)
class Light:
    """The hour and the weather: the colours of the sky, and what becomes of a surface's own colour."""

    zenith: Colour
    horizon: Colour
    ambient: Colour
    sun: Colour
    haze: float  # per metre
    clouds: float  # from 0, a clear sky, to 1
    shadow_reach: float  # metres of shadow across the street per metre of height
    lamps_lit: bool
    sun_side: int = 1  # of the street: -1 left, 1 right
    shadow_drift: float = 0.0  # metres of shadow along the street per metre across

    def on(self, albedo: Colour, depth: float, sunlit: float = 0.5) -> Colour:
        """The colour that a surface shows at that depth: lit by sky and sun, then veiled by the air between."""
        clear = 1 / (1 + self.haze * depth)  # rather than exp, whose last bit may differ between machines
        veil, sky, sun = self.horizon, self.ambient, self.sun
        return (
            veil[0] + (albedo[0] * (sky[0] + sun[0] * sunlit) - veil[0]) * clear,
            veil[1] + (albedo[1] * (sky[1] + sun[1] * sunlit) - veil[1]) * clear,
            veil[2] + (albedo[2] * (sky[2] + sun[2] * sunlit) - veil[2]) * clear,
        )


class Canvas:
    """A picture and its label map, painted by the same shapes in the same order; both supersampled.

    It begins with a backdrop, whose picture comes in planes (3, height, width).
    """

    def __init__(self, picture: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
        self._picture = Image.merge("RGB", [Image.fromarray(plane) for plane in picture])
        self._labels = Image.fromarray(labels)
        self._brush, self._glaze = ImageDraw.Draw(self._picture), ImageDraw.Draw(self._picture, "RGBA")
        self._marker = ImageDraw.Draw(self._labels)
        self._unit = float(labels.shape[0])
        self._middle = labels.shape[1] / 2 - 0.5  # Pillow's whole numbers are the samples' centres, not their corners
        self.half_width = labels.shape[1] / labels.shape[0] / 2

    def shape(self, outline: Sequence[Point], colour: Colour, label: int | None = None) -> None:
        """Fill a polygon; one without a label is a detail upon the thing already there."""
        dots = self._dots(outline)
        self._brush.polygon(dots, _ink(colour))
        if label is not None:
            self._marker.polygon(dots, label)

    def oval(self, centre: Point, across: float, down: float, colour: Colour, label: int | None = None) -> None:
        """Fill an ellipse, given by its centre and its half axes."""
        u, v = centre
        box = self._dots([(u - across, v - down), (u + across, v + down)])
        self._brush.ellipse(box, _ink(colour))
        if label is not None:
            self._marker.ellipse(box, label)

    def wash(self, outline: Sequence[Point], colour: Colour, strength: float) -> None:
        """Lay a translucent polygon over what is there: shadow, shine or lamplight, which change no class."""
        self._glaze.polygon(self._dots(outline), (*_ink(colour), int(255 * strength)))

    def finish(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The picture averaged over each pixel's samples, and the label of each pixel's centre."""
        centre = slice(SUPERSAMPLING // 2, None, SUPERSAMPLING)
        return np.asarray(self._picture.reduce(SUPERSAMPLING)), np.asarray(self._labels)[centre, centre].copy()

    def _dots(self, outline: Sequence[Point]) -> list[Point]:
        unit, middle = self._unit, self._middle
        return [(middle + u * unit, v * unit - 0.5) for u, v in outline]


def _ink(colour: Colour) -> tuple[int, int, int]:
    return int(colour[0]), int(colour[1]), int(colour[2])  # Pillow itself clips them to 0 .. 255


@dataclass(frozen=True)
class Stage:
    """All that a thing needs in order to draw itself."""

    camera: Camera
    light: Light
    canvas: Canvas
    dice: Dice
    foliage: Palette
    halos: list[tuple[Point, float, Colour]] = field(default_factory=list)  # of lamps: centre, radius, colour

    def patch(self, x: float, z: float, half_width: float, half_length: float, colour: Colour, strength: float) -> None:
        """An oval of shade or of lamplight on the ground."""
        ring = polygon(12, half_width, half_length)
        self.canvas.wash([self.camera.project(x + a, 0.0, z + b) for a, b in ring], colour, strength)


def polygon(corners: int, across: float, up: float, turn: float = 0.0, centre: Point = (0.0, 0.0)) -> list[Point]:
    """A regular polygon, stretched to those half axes; with many corners, an ellipse."""
    angles = [turn + 2 * math.pi * corner / corners for corner in range(corners)]
    return [(centre[0] + across * math.cos(angle), centre[1] + up * math.sin(angle)) for angle in angles]


class Cutout:
    """A flat thing that faces the camera, drawn in metres right of and above the spot where it stands."""

    def __init__(self, stage: Stage, x: float, z: float, size: float = 1.0) -> None:
        self._stage, self._depth = stage, z
        self._foot = stage.camera.project(x, 0.0, z)
        self._scale = size * stage.camera.focal / max(z, NEAREST)
        self.thinnest = THINNEST / self._scale

    def shape(self, outline: Sequence[Point], albedo: Colour, label: int | None = None, sunlit: float = 0.5) -> None:
        """Fill a polygon."""
        colour = self._stage.light.on(albedo, self._depth, sunlit)
        self._stage.canvas.shape([self._at(spot) for spot in outline], colour, label)

    def oval(self, centre: Point, size: Point, albedo: Colour, label: int | None = None, sunlit: float = 0.5) -> None:
        """Fill an ellipse; `size` is its half axes."""
        colour = self._stage.light.on(albedo, self._depth, sunlit)
        self._stage.canvas.oval(self._at(centre), size[0] * self._scale, size[1] * self._scale, colour, label)

    def bar(self, start: Point, end: Point, width: float, albedo: Colour, label: int | None = None) -> None:
        """A straight limb of even width."""
        (x0, y0), (x1, y1) = start, end
        half = width / 2 / max(math.dist(start, end), 1e-6)
        a, b = (y0 - y1) * half, (x1 - x0) * half
        self.shape([(x0 + a, y0 + b), (x1 + a, y1 + b), (x1 - a, y1 - b), (x0 - a, y0 - b)], albedo, label)

    def lamp(self, centre: Point, radius: float, colour: Colour, halo: float) -> None:
        """A light that shines by itself, with its halo."""
        self._stage.canvas.oval(self._at(centre), radius * self._scale, radius * self._scale, colour)
        self._stage.halos.append((self._at(centre), halo * self._scale, colour))

    def _at(self, spot: Point) -> Point:
        return self._foot[0] + spot[0] * self._scale, self._foot[1] - spot[1] * self._scale


class Wall:
    """An upright plane between two spots on the ground."""

    def __init__(self, stage: Stage, start: Point, end: Point, sunlit: float) -> None:
        self._stage, self._start, self._end, self._sunlit = stage, start, end, sunlit
        self.length = math.dist(start, end)
        self.depth = (start[1] + end[1]) / 2

    def part(self, start: float, end: float) -> Wall:
        """The wall between two uprights, given in metres from its start."""
        return Wall(self._stage, self._spot(start), self._spot(end), self._sunlit)

    def visible(self) -> bool:
        """Whether any of it can be on the screen."""
        project, edge = self._stage.camera.project, self._stage.canvas.half_width
        (u0, _), (u1, _) = (project(x, 0, z) for x, z in (self._start, self._end))
        return not (u0 < -edge and u1 < -edge) and not (u0 > edge and u1 > edge)

    def panel(self, bottom: float, top: float, albedo: Colour, label: int | None = None) -> None:
        """Fill it between two heights."""
        self._stage.canvas.shape(self._quad(bottom, top), self._stage.light.on(albedo, self.depth, self._sunlit), label)

    def shine(self, bottom: float, top: float, colour: Colour) -> None:
        """Fill it between two heights with a light of its own: a window at night."""
        self._stage.canvas.shape(self._quad(bottom, top), colour)

    def canopy(self, upper: float, lower: float, reach: float, albedo: Colour, label: int) -> None:
        """A cloth from one height down to another, so far out of the wall."""
        (x0, z0), (x1, z1), project = self._start, self._end, self._stage.camera.project
        outer = [project(x1 + reach, lower, z1), project(x0 + reach, lower, z0)]
        colour = self._stage.light.on(albedo, self.depth, 0.7)
        self._stage.canvas.shape([project(x0, upper, z0), project(x1, upper, z1), *outer], colour, label)

    def _quad(self, bottom: float, top: float) -> list[Point]:
        (x0, z0), (x1, z1), project = self._start, self._end, self._stage.camera.project
        return [project(x0, bottom, z0), project(x1, bottom, z1), project(x1, top, z1), project(x0, top, z0)]

    def _spot(self, along: float) -> Point:
        (x0, z0), (x1, z1), share = self._start, self._end, along / self.length
        return x0 + (x1 - x0) * share, z0 + (z1 - z0) * share
