"""Recipes: functions that return a configuration, by name."""

from __future__ import annotations

from collections.abc import Callable

from oneway.config import Config
from oneway.errors import unknown
from oneway.methods import METHODS, MethodName
from oneway.recipes import cifar10, cityscapes
from oneway.recipes.camvid import camvid
from oneway.recipes.folder import folder
from oneway.recipes.moons import moons
from oneway.recipes.streets import streets

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
    "folder": folder,
}

SUPERVISED: dict[str, Callable[[Config], Config]] = {
    "cifar10": cifar10.supervised,
    "cityscapes": cityscapes.supervised,
    "cityscapes-coarse": cityscapes.supervised_coarse,
}
"""Changes to recipes that the paper's supervised baselines ask for."""


def recipe(name: str, method: MethodName | None = None) -> Config:
    """The configuration of a recipe, as it is for a method where that makes a difference."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    config = RECIPES[name]()
    # What is no method is the configuration's to refuse.
    for row in (row for known, row in METHODS.items() if known == method):
        if row.supervised and name in SUPERVISED:
            config = SUPERVISED[name](config)
        if row.alpha is not None:
            config = config.model_copy(update={"train": config.train.model_copy(update={"alpha": row.alpha})})
    return config
