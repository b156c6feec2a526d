"""The settings of a run that is resumed: which of them may differ, and which are as they were when it began."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oneway import config as configuration
from oneway.config import Config
from oneway.runs.folder import open_run
from oneway.runs.reading import is_there

MAY_CHANGE = (
    *("data.path", "data.unlabelled", "data.cache", "data.refresh", "data.skip_unreadable", "train.device"),
    *("data.pool", "data.most_broken"),
)
"""Settings that may differ when a run is resumed: paths and the device; data are compared by their content."""

BY_CONTENT = ("teacher",)
"""Paths that may differ when a run is resumed, as long as the content is the same."""

PATHS = ("data.path", "data.unlabelled", "data.cache", "model.weights", "teacher")


def keep_resolved_settings(path: Path, config: Config, say: Callable[[str], None]) -> Config:
    """The settings of a resumed run, with paths, `data.reduction` and crops as they were resolved when it began.

    A path that does not exist here, and whose typed part the run's own path ends with, counts as typed in another
    working directory: the run's path is kept.
    """
    here, before, now = Path.cwd(), open_run(path).config.flat(), config.flat()
    changes: dict[str, Any] = {}
    if now["data.reduction"] == "auto":
        changes = _nested("data.reduction", before["data.reduction"])
    if now["jitter.fit"]:
        for key in ("jitter.crop", "jitter.fit"):
            changes = configuration.merge(changes, _nested(key, before[key]))
    for key in PATHS:
        then, given = before[key], now[key]
        if None in (then, given) or then == given or not Path(given).is_relative_to(here) or is_there(Path(given)):
            continue
        typed = Path(given).relative_to(here).parts
        if Path(then).parts[-len(typed) :] == typed:
            say(f"{key}: {Path(*typed)} is {then}, as it was when the run began.")
            changes = configuration.merge(changes, _nested(key, then))
    return configuration.build(configuration.merge(config.model_dump(), changes), str(path)) if changes else config


def _nested(key: str, value: Any) -> dict[str, Any]:
    section, _, name = key.rpartition(".")
    return {section: {name: value}} if section else {name: value}


def compare_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What has changed between two configurations and must not, in words."""
    moved = [key for key in BY_CONTENT if None not in (before[key], after[key])]
    changed = [key for key in before if before[key] != after[key] and key not in (*MAY_CHANGE, *moved)]
    return [f"{key}: {before[key]} → {after[key]}" for key in changed]
