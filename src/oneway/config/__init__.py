"""The configuration tree: typed, ranges checked, unknown keys refused with a suggestion."""

from __future__ import annotations

from oneway.config.conflicts import unused_settings
from oneway.config.reading import build, confirm_factory, explain, merge, read_yaml, unset_alternatives
from oneway.config.tree import (
    BatchNorm,
    Config,
    Data,
    Jitter,
    Model,
    Optimiser,
    Perturb,
    Positive,
    Precision,
    TeacherNorm,
    Train,
    names_of,
)
