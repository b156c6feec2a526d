"""Recipes: functions that return a configuration, by name."""

from oneway.config.recipes.table import RECIPES, configured, recipe

__all__ = ["RECIPES", "configured", "recipe"]
