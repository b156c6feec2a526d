"""Tables that can tell methods apart: real photographs, and each run beside one with the same seed and labels alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oneway.config import Config
from oneway.config.recipes import recipe
from oneway.methods import METHODS
from oneway.tools.baseline import BASELINE
from oneway.tools.reproduce.tables import BY_STRENGTH, BY_WEIGHT, Setup, strength_name

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

STANDARD = strength_name(1, 1)
"""The row of the paper's own settings; α is ½."""

BOTH_INPUTS = "both inputs"

SETTINGS: Mapping[str, Setup] = {
    BASELINE: Setup(BASELINE),
    **{strength_name(*strengths): one for strengths, one in BY_STRENGTH.items()},
    **{name: one for name, one in BY_WEIGHT.items() if name != "α 0.5"},
    BOTH_INPUTS: Setup("simple-phtps", changes={"train": {"batch_norm": "both"}}),
}
"""What the paper's figures vary, each alone; the last updates batch-norm statistics with perturbed inputs too."""


@dataclass(frozen=True)
class Yardstick:
    """A row for each method or setting, a column for each number of labels."""

    shows: str
    recipe: str
    columns: tuple[str, ...]
    """As `--labels` takes them; the last is all of them, from which distances are measured."""

    drives: tuple[str, ...] = ()
    """Of CamVid, each held out in turn; a cell is the mean over them."""

    iterations: int = 2000
    """Of every run, with labels alone too."""

    settings: Mapping[str, Setup] | None = None
    """The rows, where they are not methods; they are then drawn, too."""

    usual_columns: tuple[str, ...] = ()
    """Those that are trained where none are asked for; all, if empty."""

    @property
    def rows(self) -> Mapping[str, Setup]:
        """All that there are; of methods, the usual ones come first."""
        return self.settings or {name: Setup(name) for name in dict.fromkeys((*ROWS, *METHODS))}

    @property
    def usual(self) -> tuple[str, ...]:
        """The rows that are trained where none are asked for."""
        return tuple(self.settings or ROWS)

    @property
    def parts(self) -> tuple[str, ...]:
        """The drives, or one nameless part for data that come with a validation set."""
        return self.drives or ("",)

    def config(self, row: str, column: str, drive: str) -> Config:
        """Of the runs in a cell, but for seed and data."""
        one = self.rows[row]
        config = recipe(self.recipe, one.method).changed(labels=column, train={"iterations": self.iterations})
        return config.changed(**one.changes, **({"data": {"holdout_drive": drive}} if drive else {}))


DRIVES = ("0001TP", "0006R0", "0016E5")

YARDSTICKS: dict[str, Yardstick] = {
    "camvid": Yardstick(
        "CamVid by drive: three drives, each held out in turn; methods, numbers of labels",
        "camvid",
        ("20", "45", "100", "all"),
        drives=DRIVES,
    ),
    "facade": Yardstick(
        "Façades, or any folder with a validation set: methods, numbers of labels",
        "folder",
        ("20", "50", "100", "all"),
    ),
    "camvid-settings": Yardstick(
        "The paper's figures on CamVid by drive: strengths of PhTPS, weights of the loss, batch-norm statistics",
        "camvid",
        ("20", "45", "100", "all"),
        drives=DRIVES,
        settings=SETTINGS,
        usual_columns=("45",),
    ),
    "facade-settings": Yardstick(
        "The paper's figures on façades: strengths of PhTPS, weights of the loss, batch-norm statistics",
        "folder",
        ("20", "50", "100", "all"),
        settings=SETTINGS,
        usual_columns=("50",),
    ),
}
