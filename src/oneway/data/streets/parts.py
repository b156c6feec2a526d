"""The things of a street: every `draw_*` function puts one of them on the stage."""

import math
from dataclasses import dataclass

from oneway.common.terms import IGNORE
from oneway.data.streets.stage import (
    BLACK,
    BUILDING,
    CAR,
    PERSON,
    POLE,
    SIGN,
    TREE,
    Colour,
    Cutout,
    Palette,
    Point,
    Stage,
    Wall,
    polygon,
)

WHITE: Colour = (240, 240, 236)
GLASS: Colour = (52, 64, 78)
BARK: Colour = (84, 66, 52)
LAMPLIGHT: Colour = (240, 200, 130)
STEEL: Palette = ((96, 100, 104), (62, 66, 68), (138, 140, 140), (44, 58, 50), (120, 104, 88))
CONCRETE: Palette = ((150, 148, 144), (122, 124, 126), (176, 172, 164), (98, 100, 104))
TILES: Palette = ((134, 70, 54), (84, 82, 86), (110, 86, 70))
PAINTS: Palette = (
    *((36, 38, 42), (232, 232, 230), (150, 154, 158), (98, 102, 108), (168, 34, 36), (38, 72, 138), (34, 92, 72)),
    *((206, 168, 52), (198, 190, 172), (88, 44, 40), (122, 160, 186), (214, 110, 44)),
)
CLOTHES: Palette = (
    *((34, 38, 48), (178, 44, 48), (44, 84, 150), (226, 222, 212), (92, 96, 100), (206, 160, 54), (58, 104, 72)),
    *((134, 74, 120), (108, 82, 60), (222, 120, 60), (60, 60, 62)),
)
SKIN: Palette = ((238, 200, 172), (216, 170, 136), (172, 122, 88), (124, 84, 60), (84, 58, 44))
HAIR: Palette = ((34, 28, 26), (86, 58, 38), (164, 122, 70), (120, 118, 116), (140, 62, 36))
WINDOWS_WITHIN = 40.0  # metres: farther off, a house's windows are too small to matter
FRAMES_WITHIN = 20.0
HOUSE_DEPTH = 11.0


def draw_skyline(stage: Stage, depth: float) -> None:
    """What closes the view at the street's end: roofs and towers, pale with distance."""
    dice, left, base, tone = stage.dice, -1.6, stage.camera.horizon + 0.03, stage.dice.pick(CONCRETE)
    while left < 1.6:
        right, top = left + dice.between(0.05, 0.2), base - dice.between(0.03, 0.1) * dice.pick((1, 1, 1, 1.8))
        colour = stage.light.on(dice.near(tone, 12), depth)
        stage.canvas.shape([(left, base), (right, base), (right, top), (left, top)], colour, BUILDING)
        left = right


@dataclass(frozen=True)
class House:
    """One building of a row; `near` and `far` are the spots on the ground between which its front stands."""

    side: int
    near: Point
    far: Point
    storeys: int
    wall: Colour
    glazed: bool  # an office block, all windows
    pitched: bool  # under a roof of tiles
    detached: bool  # from the house before it, so that one sees its end
    storey_height: float = 3.2

    @property
    def height(self) -> float:
        """Up to the eaves."""
        return self.storeys * self.storey_height


def draw_house(stage: Stage, house: House) -> None:
    """The roof, the end towards the camera, and the front along the street."""
    dice, (x, z) = stage.dice, house.near
    sunlit = 0.08 if house.side == stage.light.sun_side else 0.95
    end = Wall(stage, house.near, (x + house.side * HOUSE_DEPTH, z), 0.4)
    front = Wall(stage, house.near, house.far, sunlit)
    trim = dice.near(house.wall, 40)
    if house.pitched:
        _draw_roof(stage, house, sunlit)
    for wall in (end, front):
        wall.panel(0, house.height, house.wall, BUILDING)
        wall.panel(house.height - 0.35, house.height, trim)
        if wall is front or house.detached:
            _draw_windows(stage, house, wall, trim)
    if not house.glazed:
        _draw_ground_floor(stage, house, front)


def _draw_roof(stage: Stage, house: House, sunlit: float) -> None:
    (x0, z0), (x1, z1), project = house.near, house.far, stage.camera.project
    middle, eaves, ridge = house.side * HOUSE_DEPTH / 2, house.height, house.height + 2.6
    corner, peak = project(x0, eaves, z0), project(x0 + middle, ridge, z0)
    slope = [corner, project(x1, eaves, z1), project(x1 + middle, ridge, z1), peak]
    stage.canvas.shape(slope, stage.light.on(stage.dice.one_of(TILES), house.near[1], sunlit), BUILDING)
    gable = [corner, peak, project(x0 + 2 * middle, eaves, z0)]
    stage.canvas.shape(gable, stage.light.on(house.wall, z0, 0.4), BUILDING)


def _draw_windows(stage: Stage, house: House, wall: Wall, frame: Colour) -> None:
    dice = stage.dice
    columns = max(int(wall.length / dice.between(2.4, 3.4)), 1)
    pitch = wall.length / columns
    width, rise = (0.9, 0.85) if house.glazed else (dice.between(0.36, 0.56), dice.between(0.42, 0.58))
    glass, lit = stage.light.zenith if house.glazed else GLASS, 0.4 if stage.light.lamps_lit else 0.02
    panes = [(True, dice.near(LAMPLIGHT, 40)) if dice.chance(lit) else (False, dice.near(glass)) for _ in range(11)]
    for column in range(columns):
        left, right = (column + 0.5 - width / 2) * pitch, (column + 0.5 + width / 2) * pitch
        opening = wall.part(left, right)
        if opening.depth > WINDOWS_WITHIN or not opening.visible():
            continue
        surround = wall.part(left - 0.14, right + 0.14)
        for storey in range(0 if house.glazed else 1, house.storeys):
            bottom = (storey + 0.5 - rise / 2) * house.storey_height
            top = bottom + rise * house.storey_height
            if opening.depth < FRAMES_WITHIN and not house.glazed:
                surround.panel(bottom - 0.18, top + 0.12, frame)
            shining, colour = panes[(column * 5 + storey * 3) % len(panes)]
            fill = opening.shine if shining else opening.panel
            fill(bottom, top, colour)


def _draw_ground_floor(stage: Stage, house: House, front: Wall) -> None:
    """Shops with fascias and awnings, or flats; and their doors."""
    dice, top, shops = stage.dice, house.storey_height, stage.dice.chance(0.55)
    bays = max(int(front.length / 4.5), 1)
    pitch = front.length / bays
    for bay in range(bays):
        start, end, tone = bay * pitch + 0.3, (bay + 1) * pitch - 0.3, dice.one_of(PAINTS)
        shining, awning = stage.light.lamps_lit and dice.chance(0.5), shops and dice.chance(0.4)
        window = front.part(start if shops else start + 1.6, end)
        if window.depth > WINDOWS_WITHIN or not window.visible():
            continue
        fill = window.shine if shining else window.panel
        fill(0.6, top - 0.9, LAMPLIGHT if shining else GLASS)
        front.part(start, start + 1.1).panel(0, 2.2, BLACK if shops else tone)
        if shops:
            front.part(start - 0.1, end + 0.1).panel(top - 0.9, top - 0.25, tone)
        if awning:
            for stripe in range(6):
                share = (end - start) / 6
                cloth = front.part(start + stripe * share, start + (stripe + 1) * share)
                cloth.canopy(2.6, 2.0, -house.side * 1.1, WHITE if stripe % 2 else tone, BUILDING)


def draw_tree(stage: Stage, x: float, z: float) -> None:
    """A trunk and a crown: conical, nearly leafless or round."""
    dice, kind = stage.dice, stage.dice.roll()
    tree, leaves = Cutout(stage, x, z, dice.between(0.8, 1.3)), dice.one_of(stage.foliage, 22)
    stage.patch(x - stage.light.sun_side, z, 1.6, 1.2, BLACK, 0.3)
    tree.bar((0, 0), (0, 2.8), max(0.3, tree.thinnest), dice.near(BARK, 24), TREE)
    if kind < 0.2:
        for tier in range(5):
            bottom, half = 0.9 + tier * 0.95, 1.5 - tier * 0.27
            tree.shape([(-half, bottom), (half, bottom), (0, bottom + 1.9)], leaves, TREE, 0.2 + tier * 0.15)
    elif kind < 0.35:
        for _ in range(9):
            tip = dice.between(-1.5, 1.5), dice.between(3.2, 5.6)
            tree.bar((0, dice.between(1.6, 2.8)), tip, max(0.12, tree.thinnest), dice.near(BARK, 20), TREE)
            tree.oval(tip, (dice.between(0.2, 0.5), 0.3), dice.near(leaves, 16), TREE)
    else:
        across, up = dice.between(1.3, 2.0), dice.between(1.2, 1.8)
        tree.oval((0, 3.6), (across, up), leaves, TREE, sunlit=0.1)
        tufts = 12 if z < 25 else 5
        for tuft in range(tufts):  # from the shaded bottom to the sunny top
            height = tuft / (tufts - 1) * 1.6 - 0.8
            centre = across * dice.between(-0.85, 0.85) * math.sqrt(1 - height**2), 3.6 + up * height
            tree.oval(centre, (across * 0.36, up * 0.3), dice.near(leaves, 12), TREE, 0.5 + 0.55 * height)


def draw_hedge(stage: Stage, x: float, near: float, far: float) -> None:
    """A row of bushes along the street."""
    leaves, height, spacing = stage.dice.one_of(stage.foliage), stage.dice.between(0.4, 0.7), 0.6
    for bush in range(int((far - near) / spacing), -1, -1):
        tuft = Cutout(stage, x, near + bush * spacing)
        tuft.oval((0, height), (0.55, height), leaves, TREE, sunlit=0.2)
        tuft.oval((0, height * 1.4), (0.4, height * 0.5), stage.dice.near(leaves, 16), TREE, sunlit=0.8)


def draw_person(stage: Stage, x: float, z: float) -> None:
    """Someone on foot, in mid-stride; now and then a child."""
    dice = stage.dice
    body = Cutout(stage, x, z, dice.between(0.65, 0.75) if dice.chance(0.12) else dice.between(0.95, 1.12))
    coat, trousers, skin, hair = (dice.one_of(tones) for tones in (CLOTHES, CLOTHES, SKIN, HAIR))
    stride, swing = dice.between(0.03, 0.3), dice.between(-0.2, 0.2)
    hem, flare = dice.pick(((0.86, 0.21), (0.5, 0.3)))  # of a jacket, of a coat
    stage.patch(x, z, 0.4, 0.3, BLACK, 0.35)
    for foot in (-stride, stride):
        body.bar((foot * 0.3, 0.9), (foot, 0.06), 0.2, trousers, PERSON)
        body.oval((foot + 0.04, 0.06), (0.12, 0.06), BLACK, PERSON)
    for shoulder, hand in ((-0.24, -0.3 - swing), (0.24, 0.3 - swing)):
        body.bar((shoulder, 1.42), (hand, 0.92), 0.14, coat, PERSON)
        body.oval((hand, 0.88), (0.07, 0.07), skin, PERSON)
    body.shape([(-0.18, 1.5), (0.18, 1.5), (0.27, 1.4), (flare, hem), (-flare, hem), (-0.27, 1.4)], coat, PERSON, 0.7)
    if dice.chance(0.3):  # carries a bag
        body.shape([(0.2, 1.05), (0.42, 1.05), (0.42, 0.7), (0.2, 0.7)], dice.pick(CLOTHES), PERSON)
    body.oval((0, 1.65), (0.14, 0.17), hair, PERSON)
    if dice.chance(0.6):  # shows the face
        body.oval((dice.between(-0.04, 0.04), 1.62), (0.11, 0.13), skin, PERSON, 0.7)


def draw_lamp_post(stage: Stage, x: float, z: float, side: int) -> None:
    """A tall post whose arm reaches over the road; lit at night, with a pool of light below."""
    dice, post = stage.dice, Cutout(stage, x, z)
    height, arm, steel = dice.between(4.8, 6.5), -side * dice.between(0.6, 1.6), dice.one_of(STEEL)
    width = max(0.15, post.thinnest)
    if stage.light.lamps_lit:
        for radius in (1.0, 1.6, 2.2, 2.8):
            stage.patch(x - side, z, radius, radius, LAMPLIGHT, 0.07)
    post.bar((0, 0), (0, 0.9), width * 1.5, steel, POLE)
    post.bar((0, 0), (0, height), width, steel, POLE)
    post.bar((0, height), (arm, height + 0.25), width, steel, POLE)
    post.oval((arm, height + 0.15), (0.4, 0.16), dice.near(steel, 30), POLE)
    if stage.light.lamps_lit:
        post.lamp((arm, height + 0.08), 0.2, LAMPLIGHT, halo=1.8)


SIGNS: dict[str, tuple[Colour, Colour, int]] = {  # rim, face and the number of corners
    "prohibition": ((200, 30, 36), WHITE, 16),
    "order": (WHITE, (36, 84, 170), 16),
    "warning": ((200, 30, 36), WHITE, 3),
    "stop": (WHITE, (190, 26, 34), 8),
    "priority": (WHITE, (240, 190, 40), 4),
    "parking": (WHITE, (32, 88, 176), 4),
}
SIGNALS: Palette = ((60, 214, 120), (246, 190, 60), (236, 54, 44))


def draw_sign(stage: Stage, x: float, z: float) -> None:
    """A traffic sign, or a set of traffic lights, on its post."""
    dice, sign = stage.dice, Cutout(stage, x, z, stage.dice.between(1.0, 1.25))
    sign.bar((0, 0), (0, 2.6), max(0.12, sign.thinnest), dice.one_of(STEEL), POLE)
    if dice.chance(0.25):
        sign.shape([(-0.28, 2.3), (0.28, 2.3), (0.28, 3.5), (-0.28, 3.5)], dice.near(BLACK, 12), SIGN)
        shining = dice.pick(range(3))
        for place, colour in enumerate(SIGNALS):
            sign.oval((0, 2.52 + place * 0.38), (0.14, 0.14), BLACK)
            if place == shining:
                sign.lamp((0, 2.52 + place * 0.38), 0.16, colour, halo=0.5)
        return
    kind = dice.pick(tuple(SIGNS))
    rim, face, corners = SIGNS[kind]
    turn = math.pi / 4 if kind == "parking" else math.pi / 2  # the others stand on a corner
    for radius, colour, label in ((0.64, rim, SIGN), (0.5, face, None)):
        sign.shape(polygon(corners, radius, radius, turn, (0, 2.8)), colour, label, sunlit=0.8)
    bar, arrow = polygon(4, 0.3, 0.1, math.pi / 4, (0, 2.8)), polygon(3, 0.18, 0.26, math.pi / 2, (0, 2.8))
    sign.shape(dice.pick((bar, arrow)), BLACK if face == WHITE else WHITE)


CAR_SHAPES = (  # length; heights of waist and roof; where the cabin begins and ends at the waist, and at the roof
    (4.5, 0.92, 1.46, (-1.75, 1.05), (-1.05, 0.25)),  # saloon
    (4.0, 0.94, 1.52, (-1.95, 0.95), (-1.7, 0.25)),  # hatchback
    (4.6, 1.08, 1.72, (-2.25, 1.05), (-2.0, 0.4)),  # estate
    (5.2, 1.15, 2.2, (-2.58, 1.75), (-2.5, 1.1)),  # van
)
Quad = list[Point]
Slab = tuple[float, float, float, float]  # rear, front, half width and height of the bottom or the top of a box
ONE_PANE, TWO_PANES = ((0.07, 0.93),), ((0.07, 0.48), (0.54, 0.93))  # from where to where on a face of the cabin
FACES: dict[str, tuple[tuple[int, ...], float, tuple[Point, ...]]] = {
    "rear": ((0, 1, 5, 4), 0.35, ONE_PANE),
    "right": ((1, 2, 6, 5), 0.5, TWO_PANES),
    "front": ((2, 3, 7, 6), 0.35, ONE_PANE),
    "left": ((3, 0, 4, 7), 0.5, TWO_PANES),
    "top": ((4, 5, 6, 7), 0.95, ()),
}  # of a box whose corners are counted around its bottom, then its top; how much sun each face gets; and its panes


class Vehicle:
    """A frame of reference that drives: places are metres (forwards, to the right, up) from its middle."""

    def __init__(self, stage: Stage, x: float, z: float, heading: float) -> None:
        self._stage, self._x, self._z = stage, x, z
        self._cos, self._sin = math.cos(heading), math.sin(heading)

    def at(self, along: float, across: float, up: float) -> Point:
        """Where on the screen a place of it appears."""
        x, z = along * self._sin + across * self._cos, along * self._cos - across * self._sin
        return self._stage.camera.project(self._x + x, up, self._z + z)

    def box(self, bottom: Slab, top: Slab, albedo: Colour) -> dict[str, Quad]:
        """Draw the faces that can be seen of a box, and return them."""
        corners = []
        for rear, front, half, up in (bottom, top):
            corners += [self.at(a, b, up) for a, b in ((rear, -half), (rear, half), (front, half), (front, -half))]
        seen = {}
        for name, (order, sunlit, _) in FACES.items():
            quad = [corners[corner] for corner in order]
            if _faces_viewer(quad):
                self._stage.canvas.shape(quad, self._stage.light.on(albedo, self._z, sunlit), CAR)
                seen[name] = quad
        return seen

    def wheel(self, along: float, across: float) -> None:
        """Draw a tyre and its hub."""
        for radius, tone in ((0.36, BLACK), (0.2, STEEL[2])):
            rim = [self.at(a, across, b) for a, b in polygon(10, radius, radius, centre=(along, 0.34))]
            self._stage.canvas.shape(rim, self._stage.light.on(tone, self._z, 0.3), CAR)


def draw_car(stage: Stage, x: float, z: float, heading: float) -> None:
    """A car whose middle is at (x, z); with heading 0 it drives away from the camera, with pi towards it."""
    dice, car, wide = stage.dice, Vehicle(stage, x, z, heading), 0.92
    length, waist, roof, cabin, top = dice.pick(CAR_SHAPES)
    half, paint = length / 2, dice.one_of(PAINTS, 14)
    shade = [car.at(a * (half + 0.2), b * (wide + 0.25), 0) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    stage.canvas.wash(shade, BLACK, 0.55)
    car.box((-half + 0.3, half - 0.3, wide - 0.08, 0.02), (-half + 0.3, half - 0.3, wide - 0.08, 0.3), BLACK)
    body = car.box((-half, half, wide, 0.24), (-half + 0.06, half - 0.16, wide - 0.03, waist), paint)
    for side, across in (("left", -wide), ("right", wide)):
        if side in body:
            car.wheel(-half * 0.62, across)
            car.wheel(half * 0.62, across)
    glass = stage.light.on(dice.near(GLASS, 14), z)
    for name, face in car.box((*cabin, wide - 0.06, waist), (*top, wide - 0.2, roof), paint).items():
        for left, right in FACES[name][2]:
            stage.canvas.shape(_inset(face, left, right, 0.1, 0.87), glass)
    for end, bright, dull in (("rear", (255, 60, 44), (170, 26, 30)), ("front", (255, 246, 214), (226, 228, 226))):
        if end in body:
            _draw_car_end(stage, body[end], z, bright, dull)


def _draw_car_end(stage: Stage, end: Quad, depth: float, bright: Colour, dull: Colour) -> None:
    """Bumper, number plate and the two lights."""
    stage.canvas.shape(_inset(end, 0.0, 1.0, 0.0, 0.12), stage.light.on(BLACK, depth))
    stage.canvas.shape(_inset(end, 0.36, 0.64, 0.18, 0.38), stage.light.on(WHITE, depth))
    for left in (0.04, 0.76):
        lamp = _inset(end, left, left + 0.2, 0.52, 0.8)
        stage.canvas.shape(lamp, bright if stage.light.lamps_lit else stage.light.on(dull, depth, 0.8))
        if stage.light.lamps_lit:
            stage.halos.append((lamp[0], 0.6 / depth, bright))


def _faces_viewer(quad: Quad) -> bool:
    """Whether the corners, given anticlockwise as seen from outside, run anticlockwise on the screen too."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = quad
    return (x2 - x0) * (y3 - y1) < (x3 - x1) * (y2 - y0)


def _inset(quad: Quad, left: float, right: float, bottom: float, top: float) -> Quad:
    """The part of a face between those shares of its width and of its height."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = quad

    def at(a: float, b: float) -> Point:
        x = (x0 * (1 - a) + x1 * a) * (1 - b) + (x3 * (1 - a) + x2 * a) * b
        y = (y0 * (1 - a) + y1 * a) * (1 - b) + (y3 * (1 - a) + y2 * a) * b
        return x, y

    return [at(left, bottom), at(right, bottom), at(right, top), at(left, top)]


def draw_bonnet(stage: Stage) -> None:
    """The front of our own car, which is of no class."""
    dice = stage.dice
    top, half, paint = dice.between(0.88, 0.95), dice.between(0.7, 1.1), dice.one_of(PAINTS)
    arc = [(half * k / 12, top + 0.12 * (k / 12) ** 4) for k in range(-12, 13)]
    stage.canvas.shape([*arc, (half, 1.1), (-half, 1.1)], stage.light.on(paint, 0), IGNORE)
    shine = [(u * 0.8, v + 0.015) for u, v in arc] + [(u * 0.8, v + 0.035) for u, v in reversed(arc)]
    stage.canvas.wash(shine, stage.light.horizon, 0.35)
