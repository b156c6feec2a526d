"""Imports Matplotlib without obeying a `matplotlibrc` in the working folder; all other modules get it from here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oneway.common.importing import MATPLOTLIB_SETTINGS


@contextmanager
def _away_from_settings() -> Iterator[None]:
    """Another working folder, if this one has such a file, which can have LaTeX started or a module loaded."""
    if "matplotlib" in sys.modules or not os.path.lexists(MATPLOTLIB_SETTINGS):
        yield
        return
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(os.sep)
        yield
    finally:
        os.fchdir(here)
        os.close(here)


with _away_from_settings():
    import matplotlib


@contextmanager
def style(settings: Mapping[str, Any]) -> Iterator[None]:
    """Within the block, figures are drawn and saved with these settings, and Matplotlib's defaults for the rest."""
    defaults: dict[Any, Any] = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    with matplotlib.rc_context(defaults | dict(settings)):
        yield
