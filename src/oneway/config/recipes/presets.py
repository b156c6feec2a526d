"""Presets: settings that go together, for recipes that learn from photographs. A flag wins over a preset."""

from __future__ import annotations

from typing import Any, Literal

from oneway.common.errors import UserError, unknown
from oneway.config.reading import merge

PresetName = Literal["cpu", "fast", "best"]

PRESETS: dict[PresetName, dict[str, dict[str, Any]]] = {
    # Minutes without a GPU (docs/results/cpu.md). Labels alone teach the first half, in a third of the time: a teacher
    # is of use once it knows something. It averages over a twentieth of the run, as in the recipe's 2,000 iterations.
    "cpu": {
        "jitter": {"crop": (160, 160), "fit": True},
        "optimiser": {"learning_rate_pretrained": 4e-4},
        "train": {
            "iterations": 640,
            "batch_unlabelled": 4,
            "consistency_from": 0.5,
            "teacher_decay": 0.965,
            "balance": "frequency",
            "validate_every": 160,
        },
    },
    "fast": {"train": {"iterations": 1000}},
    # 1.1 points on façades for 2.8 times the pixels (docs/results/facade.md). Small images get smaller crops.
    "best": {"jitter": {"crop": (448, 448), "fit": True}, "train": {"batch_unlabelled": 16}},
}

PHOTOGRAPHS = ("folder", "camvid")
"""The recipes that they were measured with."""


def with_preset(name: PresetName, recipe: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The settings of a preset, and over them the changes.

    Raises:
        UserError: There is no such preset, or the recipe has the paper's own settings, which it would spoil.
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    if recipe not in PHOTOGRAPHS:
        raise UserError(
            f"--preset {name}: for {' and '.join(PHOTOGRAPHS)}. {recipe} has settings of its own; change single ones "
            "by their flags, such as --train.iterations 2000."
        )
    return merge(PRESETS[name], changes)
