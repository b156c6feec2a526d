"""The settings of a run, read without PyTorch."""

from __future__ import annotations

import shlex
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.links import refuse_link
from oneway.common.run_files import CONFIG, ENVIRONMENT
from oneway.common.words import visible
from oneway.config import Config, build, read_yaml
from oneway.methods import METHODS
from oneway.runs import records


def read_settings(path: Path, any_method: bool) -> Config:
    """The settings in a run folder; with `any_method`, also those of a method that only another program knows."""
    file = refuse_link(path / CONFIG)
    tree = read_yaml(file)
    method = tree.get("method")
    if any_method and isinstance(method, str) and method not in METHODS:
        # Its other settings are checked as those of labels alone, which no teacher has taught.
        known = build({**tree, "method": "supervised", "teacher": None}, source=str(file))
        return known.changed(method=method)
    refuse_own_method(path, method)
    return build(tree, source=str(file))


def refuse_own_method(path: Path, method: object) -> None:
    """Refuse a run whose method is not ours, and name the program that trained it, where the run knows it."""
    if not isinstance(method, str) or method in METHODS:
        return
    try:
        words = shlex.split(records.read(path / ENVIRONMENT, records.Environment)["command"])
    except (UserError, ValueError):
        words = []
    if words and words[0].endswith(".py"):
        trained = visible(shlex.join(words)[:400], lines=False)
        raise UserError(
            f"{path}: its method {method[:100]!r} is none of oneway's, but one of the program that trained it "
            f"({trained}). Use that program in the place of `oneway`."
        )
