"""Recipes: functions that return a configuration, by name."""

from __future__ import annotations

from collections.abc import Callable

from oneway.config import Config
from oneway.errors import unknown
from oneway.recipes.cifar10 import cifar10
from oneway.recipes.moons import moons
from oneway.recipes.streets import streets

RECIPES: dict[str, Callable[[], Config]] = {
    "streets": streets,
    "moons": moons,
    "cifar10": cifar10,
}


def recipe(name: str) -> Config:
    """The configuration of a recipe."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]()
