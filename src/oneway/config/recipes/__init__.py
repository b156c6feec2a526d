"""Recipes: functions that return a configuration, by name."""

from oneway.config.recipes.presets import PRESETS, PresetName, with_preset
from oneway.config.recipes.table import RECIPES, configured, recipe
