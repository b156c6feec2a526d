"""`streets`: road scenes seen from a driving car, made by code.

`render(seed, index, height, width)` is a pure function: picture `index` of the set `seed`, and the class of each of
its pixels. Nothing is downloaded or stored; a scene does not depend on the scenes made before it, and it is the same
scene at every size. Labels are exact: picture and label map are painted by the same shapes in the same order.

The geometry of a street is simple enough to be learnt; its looks (light, weather, materials, colours, camera) vary so
much that a handful of labelled pictures cannot show them all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from oneway.data.streets import parts
from oneway.data.streets.parts import House
from oneway.data.streets.stage import (
    PAVEMENT,
    ROAD,
    SKY,
    SUPERSAMPLING,
    Camera,
    Canvas,
    Colour,
    Dice,
    Light,
    Palette,
    Stage,
)

CLASSES: tuple[str, ...] = ("sky", "building", "road", "pavement", "tree", "car", "person", "pole", "sign")
COLOURS: tuple[tuple[int, int, int], ...] = (
    *((112, 172, 214), (92, 84, 92), (128, 64, 128), (236, 130, 210), (96, 146, 52)),
    *((24, 44, 160), (226, 32, 64), (172, 172, 168), (240, 212, 32)),
)

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Thing = tuple[float, Callable[[Stage], None]]  # a depth, and how to draw what stands there

SURFACES = 6
ASPHALT, CYCLE_LANE, KERB, SLABS, MARKING, PUDDLE = range(SURFACES)
FARTHEST = 140.0  # metres: there the ground ends
LAST_HOUSE = 80.0
JUNCTION_HALF_WIDTH = 4.5
NOWHERE = -50.0  # the position along the street of what this street has not
SUMMER: Palette = ((70, 112, 48), (52, 94, 50), (92, 130, 58), (44, 80, 44), (104, 126, 80))
AUTUMN: Palette = ((176, 92, 40), (150, 62, 42), (196, 144, 52), (122, 84, 52), (134, 118, 54))
BRICK: Palette = ((150, 78, 60), (128, 66, 54), (172, 104, 78), (112, 72, 64))
PASTEL: Palette = ((222, 206, 172), (206, 186, 180), (178, 196, 170), (232, 226, 214), (150, 176, 196), (236, 214, 140))
PLASTER: Palette = (*PASTEL, (214, 170, 120), (122, 150, 112), (196, 130, 112))

NOON = Light((64, 124, 206), (186, 212, 234), (0.52, 0.57, 0.64), (0.66, 0.6, 0.5), 0.004, 0.5, 0.8, False)
OVERCAST = Light((158, 166, 178), (208, 211, 214), (0.78, 0.8, 0.83), (0.06, 0.06, 0.06), 0.008, 0.9, 0.0, False)
GOLDEN = Light((112, 132, 178), (250, 202, 142), (0.55, 0.5, 0.5), (0.8, 0.52, 0.26), 0.006, 0.5, 1.6, False)
DUSK = Light((48, 54, 100), (222, 132, 104), (0.4, 0.36, 0.46), (0.08, 0.05, 0.04), 0.007, 0.6, 0.0, True)
NIGHT = Light((10, 12, 28), (46, 44, 60), (0.3, 0.28, 0.36), (0.05, 0.05, 0.04), 0.006, 0.4, 0.0, True)
FOG = Light((186, 190, 194), (204, 206, 208), (0.72, 0.73, 0.75), (0.05, 0.05, 0.05), 0.04, 0.2, 0.0, False)
SATURATION, EXPOSURE, WARMTH, TINT = (0.2, 1.5), (0.6, 1.5), (-0.4, 0.4), (-0.15, 0.15)  # of the camera
LIGHTS = (NOON, NOON, NOON, OVERCAST, OVERCAST, GOLDEN, GOLDEN, DUSK, NIGHT, FOG)


def render(seed: int, index: int, height: int, width: int) -> tuple[Bytes, Bytes]:
    """Scene `index` of the set `seed`: the picture (height, width, 3) in RGB, and the class of each pixel's centre."""
    dice = Dice(seed, index)
    light, street = choose_light(dice), plan_street(dice)
    houses = plan_houses(dice, street)
    canvas = Canvas(*paint_backdrop(dice, light, street, houses, height, width))
    stage = Stage(street.camera, light, canvas, dice, foliage=dice.pick((SUMMER, SUMMER, AUTUMN, SUMMER + AUTUMN)))
    parts.draw_skyline(stage, FARTHEST)
    for _, draw in sorted(place_things(dice, street, houses), key=lambda thing: -thing[0]):
        draw(stage)
    if dice.chance(0.45):
        parts.draw_bonnet(stage)
    picture, labels = canvas.finish()
    return photograph(picture, labels, stage), labels


def choose_light(dice: Dice) -> Light:
    """The hour and the weather, no two quite alike."""
    light = dice.pick(LIGHTS)
    return replace(
        light,
        zenith=dice.near(light.zenith, 14),
        horizon=dice.near(light.horizon, 14),
        haze=light.haze * dice.between(0.6, 1.5),
        clouds=light.clouds * dice.between(0.4, 1.4),
        shadow_reach=light.shadow_reach * dice.between(0.5, 1.5),
        sun_side=dice.pick((-1, 1)),
        shadow_drift=dice.between(-1.2, 1.2),
    )


@dataclass(frozen=True)
class Street:
    """A road along z, bent like a parabola, with a pavement on either side; widths are in metres from its middle."""

    camera: Camera
    half_width: float
    edge: float  # where the pavement ends and the houses begin
    bend: float
    lane: int  # the side one drives on: -1 left, 1 right
    junction: float  # how far off a side street crosses
    zebra: float  # how far off people may

    def beside(self, z: float, offset: float) -> float:
        """The x of what stands so far right of the road's middle."""
        return self.bend * z * z + offset


def plan_street(dice: Dice) -> Street:
    """Its widths, its bend, and where it is crossed."""
    half_width, lane = dice.between(3.9, 5.4), dice.pick((-1, 1))
    camera = Camera(
        x=lane * half_width * dice.between(0.15, 0.4),
        y=dice.between(1.75, 2.3),
        focal=dice.between(0.9, 1.15),
        vanishing=dice.between(-0.18, 0.18),
        horizon=dice.between(0.4, 0.5),
    )
    edge = half_width + dice.between(3.5, 5.0)
    bend = dice.between(-0.003, 0.003) if dice.chance(0.5) else 0.0
    junction = dice.between(14, 45) if dice.chance(0.5) else NOWHERE
    zebra = dice.between(7, 22) if dice.chance(0.35) else NOWHERE
    return Street(camera, half_width, edge, bend, lane, junction, zebra)


def plan_houses(dice: Dice, street: Street) -> list[House]:
    """A row on either side, with a gap now and then, and one where the side street is."""
    usual, houses = dice.pick((2, 2, 3, 4)), []
    for side in (-1, 1):
        end = 1.0
        while end < LAST_HOUSE:
            start = end + (dice.between(3, 9) if dice.chance(0.3) else 0.0)
            if abs(start - street.junction) < JUNCTION_HALF_WIDTH + 4:
                start = street.junction + JUNCTION_HALF_WIDTH
            length, before_junction = dice.between(8, 20), street.junction - JUNCTION_HALF_WIDTH - start
            detached = start > end
            end = start + (min(length, before_junction) if before_junction > 0 else length)
            offset = side * (street.edge + dice.between(0, 0.6))
            near, far = ((street.beside(z, offset), z) for z in (start, end))
            storeys = usual + dice.pick((-1, 0, 0, 1))
            wall = dice.one_of(dice.pick((BRICK, PLASTER, PLASTER, parts.CONCRETE)))
            glazed, pitched = storeys > 2 and dice.chance(0.25), storeys < 4 and dice.chance(0.6)
            houses.append(House(side, near, far, storeys, wall, glazed, pitched, detached))
    return houses


@cache
def noise_tile() -> Floats:
    """Tileable noise of mean 0 and deviation 1, coarse and fine at once: for clouds, stains and leaves alike."""
    generator = np.random.Generator(np.random.Philox(key=[7, 7]))
    total = np.zeros((256, 256), np.float32)
    for step in (32, 16, 8, 4, 2):
        layer = generator.standard_normal((256 // step, 256 // step), np.float32).repeat(step, 0).repeat(step, 1)
        for axis in (0, 0, 1, 1):  # two box filters in a row make blocks smooth
            layer = np.mean([np.roll(layer, shift, axis) for shift in range(step)], axis=0)
        total += layer * step**0.6
    return np.asarray((total - total.mean()) / total.std()).ravel()


def noise(down: Floats, right: Floats) -> Floats:
    """The noise at those places, counted in its cells."""
    rows, columns = (down + 4096).astype(np.int32) & 255, (right + 4096).astype(np.int32) & 255
    return noise_tile().take(rows * 256 + columns)


def screen(height: int, width: int) -> tuple[Floats, Floats]:
    """The screen coordinates of a grid's centres: a column down and a row to the right."""
    down, right = np.arange(height, dtype=np.float32) + 0.5, np.arange(width, dtype=np.float32) + 0.5 - width / 2
    return (down / height)[:, None], (right / height)[None, :]


def planes(*colours: Colour) -> Floats:
    """Colours as an array of shape (3, 1, colours): arrays of pixels are kept in planes, where NumPy is quickest."""
    return np.array(colours, np.float32).T[:, None]


def paint_backdrop(
    dice: Dice, light: Light, street: Street, houses: list[House], height: int, width: int
) -> tuple[Bytes, Bytes]:
    """The sky, and the ground from its far end on; supersampled, though the sky is too smooth to need it."""
    camera = street.camera
    down, right = screen(height, width)
    sky = paint_sky(dice, light, camera, down[: math.ceil((camera.horizon + 0.05) * height)], right)
    height, width = height * SUPERSAMPLING, width * SUPERSAMPLING
    picture, labels = np.empty((3, height, width), np.uint8), np.full((height, width), SKY, np.uint8)
    picture[:, : sky.shape[1] * SUPERSAMPLING] = sky.repeat(SUPERSAMPLING, 1).repeat(SUPERSAMPLING, 2)
    down, right = screen(height, width)
    first = int(np.searchsorted(down[:, 0], camera.horizon + camera.focal * camera.y / FARTHEST))
    picture[:, first:], labels[first:] = paint_ground(dice, light, street, houses, down[first:], right)
    return picture, labels


def paint_sky(dice: Dice, light: Light, camera: Camera, down: Floats, right: Floats) -> Bytes:
    """A gradient, clouds on a plane overhead, and the glow around the sun."""
    rise = np.clip((camera.horizon - down) / camera.horizon, 0, 1)
    overhead = 14 / (rise + 0.25)
    cover = noise(overhead * 3 + dice.between(0, 256), right * overhead * 2 + dice.between(0, 256))
    cover = np.clip(cover * 0.5 + light.clouds - 0.45, 0, 1) * np.minimum(rise * 4, 1)
    away = (right - light.sun_side * dice.between(0.1, 0.9)) ** 2 + (down - camera.horizon * dice.between(0.2, 1)) ** 2
    zenith, horizon = planes(light.zenith), planes(light.horizon)
    clear = horizon + (zenith - horizon) * (rise * (1.6 - 0.6 * rise))
    cloud = 0.5 * horizon + 128 * planes(light.ambient)
    sky: Floats = clear + (cloud - clear) * cover + planes(light.sun) * (90 / (1 + 30 * away))
    return np.clip(sky, 0, 255).astype(np.uint8)


def paint_ground(
    dice: Dice, light: Light, street: Street, houses: list[House], down: Floats, right: Floats
) -> tuple[Floats, Bytes]:
    """Road and pavements, found by following each ray to the ground; with the shadows of the houses upon them."""
    camera = street.camera
    along = camera.focal * camera.y / (down - camera.horizon)
    across = camera.x + (right - camera.vanishing) * along / camera.focal - street.bend * along * along
    surface, is_road = pave(dice, street, along, across)
    if light.shadow_reach:
        surface += np.uint8(SURFACES) * in_shadow(light, street, houses, along, across)
    grooves = ~is_road & (striped(across, 0.9, 0.07) | striped(along, 0.9, 0.07))
    detail = 1 / (1 + (along / 20) ** 2)  # far off, it would be finer than the samples
    grain = 1 + detail * (dice.between(0.02, 0.12) * noise(across * 5, along * 5) - 0.25 * grooves)
    clear = 1 / (1 + light.haze * along)
    ground = choose_surfaces(dice, light)[:, 0].take(surface, axis=1)
    ground *= grain * clear
    ground += planes(light.horizon) * (1 - clear)
    return np.clip(ground, 0, 255, out=ground), np.where(is_road, np.uint8(ROAD), np.uint8(PAVEMENT))


def choose_surfaces(dice: Dice, light: Light) -> Floats:
    """The colour planes of each kind of ground, in their order: in the sun, then in the shade."""
    asphalt = dice.one_of(((92, 92, 96), (118, 114, 110), (70, 72, 78), (132, 122, 112)))
    slabs = dice.one_of(((168, 164, 156), (142, 136, 132), (176, 152, 132), (128, 128, 130), (150, 108, 92)))
    cycle_lane, kerb, marking = dice.one_of(((150, 70, 58), (72, 120, 84))), (176, 174, 168), dice.near((222, 220, 212))
    albedo = planes(asphalt, cycle_lane, kerb, slabs, marking, asphalt)
    ambient, sun = planes(light.ambient), planes(light.sun)
    colours = np.concatenate([albedo * (ambient + 0.85 * sun), albedo * ambient], axis=2)
    colours[..., PUDDLE::SURFACES] = 0.55 * planes(light.horizon) + 0.3 * colours[..., PUDDLE::SURFACES]
    return colours


def pave(dice: Dice, street: Street, along: Floats, across: Floats) -> tuple[Bytes, Mask]:
    """Which kind of surface the ground has where, and whether that is road."""
    offset, half = np.abs(across), street.half_width
    at_junction = np.abs(along - street.junction) < JUNCTION_HALF_WIDTH
    is_road = (offset < half) | at_junction
    surface = np.where(is_road, np.uint8(ASPHALT), np.uint8(SLABS))
    np.putmask(surface, (offset < half + 0.3) & ~is_road, KERB)
    if dice.chance(0.2):
        np.putmask(surface, (offset > half - 1.4) & (offset < half), CYCLE_LANE)
    lines = (offset < 0.09) & striped(along + dice.between(0, 6), 6, dice.pick((2.0, 3.5, 6.0)))
    if dice.chance(0.5):
        lines |= np.abs(offset - half + 0.45) < 0.07
    lines &= ~at_junction & (np.abs(along - street.zebra) > 3)
    if street.zebra > 0:
        lines |= (np.abs(along - street.zebra) < 1.7) & striped(across, 1.1, 0.55) & (offset < half - 0.2)
    np.putmask(surface, lines, MARKING)
    if dice.chance(0.3):
        x, z, width = dice.between(-0.8, 0.8) * half, dice.between(4, 14), dice.between(0.6, 1.6)
        rim = 1 + 0.2 * noise(across * 12, along * 12)
        np.putmask(surface, is_road & (((across - x) / width) ** 2 + ((along - z) / (2 * width)) ** 2 < rim), PUDDLE)
    return surface, is_road


def striped(place: Floats, period: float, width: float) -> Mask:
    """Whether a place lies on one of the stripes that recur with that period."""
    turns = place * (1 / period)
    return np.asarray(turns - np.floor(turns) < width / period)


def in_shadow(light: Light, street: Street, houses: list[House], along: Floats, across: Floats) -> Mask:
    """Where a house on the sun's side keeps the sun from the ground, seen from there."""
    heights = np.zeros(256, np.float32)  # by metres along the street, from 50 metres behind us
    for house in houses:
        if house.side == light.sun_side:
            heights[int(house.near[1]) + 50 : int(house.far[1]) + 50] = house.height
    distance = street.edge - light.sun_side * across
    hidden_by = np.clip(along + light.shadow_drift * distance + 50, 0, 255).astype(np.int32)
    return np.asarray(heights.take(hidden_by) * light.shadow_reach > distance)


def place_things(dice: Dice, street: Street, houses: list[House]) -> list[Thing]:
    """All that stands in the street, each with the depth that decides what hides what.

    A house counts by its far end, since whatever stands before its front is nearer the middle of the street.
    """
    things: list[Thing] = [(house.far[1], partial(parts.draw_house, house=house)) for house in houses]
    things += [*place_traffic(dice, street), *place_people(dice, street)]
    return [*things, *place_furniture(dice, street, -1), *place_furniture(dice, street, 1)]


def place_people(dice: Dice, street: Street) -> list[Thing]:
    """On the pavements, as close as the view is wide enough for; some cross the road."""
    things: list[Thing] = []
    for _ in range(dice.pick(range(4, 9))):
        offset = dice.pick((-1, 1)) * dice.between(street.half_width + 0.3, street.edge - 0.3)
        z = 1.1 * street.camera.focal * abs(offset - street.camera.x) + 11 * dice.roll() ** 2
        if dice.chance(0.2):
            z, offset = max(street.zebra, dice.between(7, 16)), dice.between(-1, 1) * street.half_width
        things.append((z, partial(parts.draw_person, x=street.beside(z, offset), z=z)))
    return things


def place_traffic(dice: Dice, street: Street) -> list[Thing]:
    """Cars parked at the kerbs, driving ahead, coming towards us and crossing at the junction."""
    things: list[Thing] = []

    def add(offset: float, z: float, heading: float) -> None:
        heading += math.atan(2 * street.bend * z)
        things.append((z - 2, partial(parts.draw_car, x=street.beside(z, offset), z=z, heading=heading)))

    for side in (-1, 1):
        z = dice.between(6.5, 12) if dice.chance(0.75) else math.inf
        while z < 38:
            if abs(z - street.junction) > 7 and abs(z - street.zebra) > 5 and dice.chance(0.8):
                add(side * (street.half_width - 1.05), z, 0.0 if side == street.lane else math.pi)
            z += dice.between(5.5, 11)
    for side, heading in ((street.lane, 0.0), (-street.lane, math.pi)):
        if dice.chance(0.55):
            add(side * street.half_width * 0.33, dice.between(8, 28), heading)
    if dice.chance(0.5):
        add(dice.between(-8, 8), street.junction + 1.5, math.pi / 2)
    return [thing for thing in things if thing[0] > 0]


def place_furniture(dice: Dice, street: Street, side: int) -> list[Thing]:
    """Trees, lamps, signs and a hedge on one pavement."""
    things: list[Thing] = []
    kerb = side * (street.half_width + 0.6)
    z, spacing = dice.between(7, 14) if dice.chance(0.8) else math.inf, dice.between(7, 16)
    while z < 60:
        x = street.beside(z, kerb + side * dice.between(0, 1.8))
        things.append((z, partial(parts.draw_tree, x=x, z=z)))
        z += spacing * dice.between(0.8, 1.3)
    z = dice.between(8, 16)
    while z < 60:
        things.append((z, partial(parts.draw_lamp_post, x=street.beside(z, kerb), z=z, side=side)))
        z += dice.between(16, 26)
    for _ in range(dice.pick((1, 1, 2, 3))):
        z = dice.between(7.5, 20)
        things.append((z, partial(parts.draw_sign, x=street.beside(z, kerb), z=z)))
    if dice.chance(0.3):
        far, x = dice.between(14, 22), street.beside(15, side * (street.edge - 0.5))
        things.append((far, partial(parts.draw_hedge, x=x, near=9.0, far=far)))
    return things


def photograph(picture: Bytes, labels: Bytes, stage: Stage) -> Bytes:
    """What the camera makes of the scene: blur, halos, saturation, white balance, exposure, vignette and noise."""
    dice, (down, right) = stage.dice, screen(*labels.shape)
    blurred = Image.fromarray(picture).filter(ImageFilter.GaussianBlur(0.007 * dice.roll() ** 2 * len(labels)))
    scene = np.asarray(blurred).transpose(2, 0, 1).astype(np.float32, order="C")
    rough = np.array([0, dice.between(0.02, 0.1), 0, 0, 0.22, 0.03, 0.05, 0.03, 0.02], np.float32)  # by class
    scene *= 1 + rough.take(labels, mode="clip") * noise(down * 150, right * 150)
    for (u, v), radius, colour in stage.halos:
        halo = 1 / (1 + ((right - u) ** 2 + (down - v) ** 2) * (4 / radius**2))
        scene += planes(colour) * (0.5 * halo * halo)
    grey = scene.mean(axis=0)
    scene = grey + dice.between(*SATURATION) * (scene - grey)
    exposure, warmth, tint = dice.between(*EXPOSURE), dice.between(*WARMTH), dice.between(*TINT)
    balance = planes((exposure * (1 + warmth), exposure * (1 + tint), exposure * (1 - warmth)))
    scene *= balance * (1 - dice.between(0, 0.28) * (right**2 + (down - 0.5) ** 2))
    scene += dice.between(1, 8) * dice.generator.standard_normal(scene.shape, np.float32)
    return np.clip(scene, 0, 255).astype(np.uint8).transpose(1, 2, 0).copy()
