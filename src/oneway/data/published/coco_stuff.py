"""COCO-Stuff (164k) with its 80 things and 91 kinds of stuff, listed from its official layout.

    images/{train2017,val2017}/NAME.jpg
    annotations/{train2017,val2017}/NAME.png

`train2017` and `val2017` may lie in the folder itself, and masks in `stuffthingmaps`. Masks hold the number of a
category less one; of categories up to 91, eleven are used nowhere.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from oneway.common.terms import IGNORE
from oneway.data.dataset import Listing
from oneway.data.folder.classes import default_colours
from oneway.data.published.shared import first_with, incomplete, pairs, read_ids, require_folder

THINGS = tuple(
    name.replace("_", " ")
    for name in """person bicycle car motorcycle airplane bus train truck boat traffic_light fire_hydrant stop_sign
    parking_meter bench bird cat dog horse sheep cow elephant bear zebra giraffe backpack umbrella handbag tie suitcase
    frisbee skis snowboard sports_ball kite baseball_bat baseball_glove skateboard surfboard tennis_racket bottle
    wine_glass cup fork knife spoon bowl banana apple sandwich orange broccoli carrot hot_dog pizza donut cake chair
    couch potted_plant bed dining_table toilet tv laptop mouse remote keyboard cell_phone microwave oven toaster sink
    refrigerator book clock vase scissors teddy_bear hair_drier toothbrush""".split()
)
STUFF = tuple(
    """banner blanket branch bridge building-other bush cabinet cage cardboard carpet ceiling-other ceiling-tile cloth
    clothes clouds counter cupboard curtain desk-stuff dirt door-stuff fence floor-marble floor-other floor-stone
    floor-tile floor-wood flower fog food-other fruit furniture-other grass gravel ground-other hill house leaves light
    mat metal mirror-stuff moss mountain mud napkin net paper pavement pillow plant-other plastic platform playingfield
    railing railroad river road rock roof rug salad sand sea shelf sky-other skyscraper snow solid-other stairs stone
    straw structural-other table tent textile-other towel tree vegetable wall-brick wall-concrete wall-other wall-panel
    wall-stone wall-tile wall-wood water-other waterdrops window-blind window-other wood""".split()
)
CLASSES = (*THINGS, *STUFF)
UNUSED = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83, 91)  # categories
LAST = 182
NUMBERS = [category - 1 for category in range(1, LAST + 1) if category not in UNUSED]
IDS = dict(zip(NUMBERS, range(len(CLASSES)), strict=True)) | {IGNORE: IGNORE}
EXPECTED = "Masks of COCO-Stuff hold a category less one, 0 to 181, and 255 for none."
MASKS = ("annotations", "stuffthingmaps", "stuffthingmaps_trainval2017")  # one of these folders has them
OFFICIAL_COUNTS = {"train2017": 118_287, "val2017": 5_000}


def list_coco_stuff(root: Path | None) -> Listing:
    """Training and validation images; what is no category is ignored."""
    root = require_folder(root, "COCO-Stuff")
    images = first_with("val2017", root / "images", root)
    masks = first_with("val2017", *(root / name for name in MASKS))
    train, val = (pairs(root, images / split, masks / split) for split in OFFICIAL_COUNTS)
    return Listing(
        root=root,
        classes=CLASSES,
        colours=default_colours(CLASSES),
        train=train,
        val=val,
        read_labels=partial(read_ids, IDS, EXPECTED),
        remarks=incomplete("COCO", OFFICIAL_COUNTS, train, val),
        label_coding="COCO-Stuff, 171 classes",
        recipe="coco-stuff",
    )
