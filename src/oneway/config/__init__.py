"""The configuration tree: typed, ranges checked, unknown keys refused with a suggestion."""

from __future__ import annotations

from oneway.config.reading import build, confirm_factory, explain, merge, read_yaml, with_length
from oneway.config.sense import MODEL_FOR, SEGMENTERS, unheeded
from oneway.config.tree import (
    BatchNorm,
    Config,
    Data,
    Jitter,
    Model,
    Optimiser,
    Perturb,
    Positive,
    TeacherNorm,
    Train,
    names_of,
)

__all__ = [
    "MODEL_FOR",
    "SEGMENTERS",
    "BatchNorm",
    "Config",
    "Data",
    "Jitter",
    "Model",
    "Optimiser",
    "Perturb",
    "Positive",
    "TeacherNorm",
    "Train",
    "build",
    "confirm_factory",
    "explain",
    "merge",
    "names_of",
    "read_yaml",
    "unheeded",
    "with_length",
]
