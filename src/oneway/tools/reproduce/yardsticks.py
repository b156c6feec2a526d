"""Tables that can tell methods apart: real photographs, and each run beside one with the same seed and labels alone."""

from __future__ import annotations

from dataclasses import dataclass

from oneway.config import Config
from oneway.config.recipes import recipe

ROWS = (
    "supervised",
    "supervised-balanced",
    "simple-phtps",
    "mt-phtps",
    "mt-phtps-cutmix",
    "mt-colour-cutmix",
    "mt-colour-cutmix-drop",
    "fixmatch",
    "classmix",
    "cps",
    "unimatch",
    "unimatch-v2",
    "augseg",
    "cac",
)
"""The paper's methods, and those of the field; any other method can be asked for by its name."""


@dataclass(frozen=True)
class Yardstick:
    """A row for each method, a column for each number of labels."""

    shows: str
    recipe: str
    columns: tuple[str, ...]
    """As `--labels` takes them; the last is all of them, from which distances are measured."""

    drives: tuple[str, ...] = ()
    """Of CamVid, each held out in turn; a cell is the mean over them."""

    iterations: int = 2000
    """Of every run, with labels alone too."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The drives, or one nameless part for data that come with a validation set."""
        return self.drives or ("",)

    def config(self, row: str, column: str, drive: str) -> Config:
        """Of the runs in a cell, but for seed and data."""
        config = recipe(self.recipe, row).changed(labels=column, train={"iterations": self.iterations})
        return config.changed(data={"holdout_drive": drive}) if drive else config


YARDSTICKS: dict[str, Yardstick] = {
    "camvid": Yardstick(
        "CamVid by drive: three drives, each held out in turn; methods, numbers of labels",
        "camvid",
        ("20", "45", "100", "all"),
        drives=("0001TP", "0006R0", "0016E5"),
    ),
    "facade": Yardstick(
        "Façades, or any folder with a validation set: methods, numbers of labels",
        "folder",
        ("20", "50", "100", "all"),
    ),
}
