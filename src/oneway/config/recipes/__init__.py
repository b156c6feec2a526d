"""Recipes: functions that return a configuration, by name."""

from oneway.config.recipes.table import RECIPES, configured, recipe
