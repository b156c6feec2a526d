"""The recipes by name, and the configuration that a recipe, a method and further changes give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oneway.common.errors import UserError, unknown
from oneway.config import Config, build, merge, unset_alternatives, unused_settings
from oneway.config.recipes import cifar10, cityscapes, everyday
from oneway.config.recipes.camvid import camvid
from oneway.config.recipes.folder import folder
from oneway.config.recipes.moons import moons
from oneway.config.recipes.streets import streets
from oneway.methods import METHODS

RECIPES: dict[str, Callable[[], Config]] = {
    "streets": streets,
    "moons": moons,
    "cifar10": cifar10.cifar10,
    "camvid": camvid,
    "cityscapes-half": cityscapes.cityscapes_half,
    "cityscapes": cityscapes.cityscapes,
    "cityscapes-coarse": cityscapes.cityscapes_coarse,
    "cityscapes-half-deeplabv2": cityscapes.cityscapes_half_deeplabv2,
    "cityscapes-deeplabv3plus": cityscapes.cityscapes_deeplabv3plus,
    "voc": everyday.voc,
    "ade20k": everyday.ade20k,
    "coco-stuff": everyday.coco_stuff,
    "folder": folder,
}

OF_METHOD: dict[tuple[str, str], Callable[[Config], Config]] = {("cifar10", "fixmatch-ema"): cifar10.fixmatch_ema}
"""How a recipe changes for a method that is not the paper's."""

SUPERVISED: dict[str, Callable[[Config], Config]] = {
    "cifar10": cifar10.supervised,
    "cityscapes": cityscapes.supervised,
    "cityscapes-coarse": cityscapes.supervised_coarse,
}
"""How the paper changes a recipe for its supervised baseline."""


def recipe(name: str, method: str | None = None) -> Config:
    """The configuration of a recipe with its own or another method, whose settings win over the recipe's."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    config = RECIPES[name]()
    if not isinstance(method, str) or method not in METHODS:
        method = config.method  # a file can hold anything here: `build` refuses it
    config = config.changed(method=method)
    if METHODS[method].supervised and name in SUPERVISED:
        config = SUPERVISED[name](config)
    config = OF_METHOD.get((name, method), lambda same: same)(config)
    config = config.changed(train=dict(METHODS[method].train))
    if METHODS[method].teacher == "mean":
        config = config.changed(train={"teacher_norm": "population"})  # a recipe's choice is for simple teachers
    return config


def configured(name: str, changes: dict[str, Any], source: str) -> Config:
    """A checked configuration: the recipe, and over it the changes, by section and setting.

    Raises:
        UserError: A change is wrong; says `source`, key and value.
    """
    base = recipe(name, changes.get("method")).model_dump()
    config = build(merge(base, unset_alternatives(changes)), source)
    for reason in unused_settings(config.data):
        raise UserError(f"{source}: {reason}.")
    return config
