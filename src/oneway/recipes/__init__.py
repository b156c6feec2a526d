"""Recipes: functions that return a configuration, by name."""

from __future__ import annotations

from collections.abc import Callable

from oneway.config import Config
from oneway.errors import unknown
from oneway.recipes.streets import streets

RECIPES: dict[str, Callable[[], Config]] = {
    "streets": streets,
}


def recipe(name: str) -> Config:
    """The configuration of a recipe."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]()
