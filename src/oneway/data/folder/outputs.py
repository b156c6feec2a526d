"""Folders that oneway wrote itself: what it found in images must not become images to learn from."""

from __future__ import annotations

from pathlib import Path

from oneway.common.run_files import CONFIG, ENVIRONMENT, METRICS, SPLIT, SUMMARY

PREDICTIONS = "predictions.json"
"""Lies beside predicted masks and overlays."""


def is_output(folder: Path) -> bool:
    """Whether a folder is a run, or holds predictions."""
    if (folder / PREDICTIONS).is_file():
        return True
    return (folder / CONFIG).is_file() and any(
        (folder / name).is_file() for name in (ENVIRONMENT, SPLIT, METRICS, SUMMARY)
    )
