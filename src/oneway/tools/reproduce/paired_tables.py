"""Tables on real photographs in which each run is paired with one on labels alone that has the same seed."""

from __future__ import annotations

from collections.abc import Mapping

from oneway.methods import METHODS
from oneway.tools.baseline import BASELINE
from oneway.tools.reproduce.tables import BY_STRENGTH, BY_WEIGHT, TABLES, RunTable, Setup, strength_name

USUAL = (
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

BY_METHOD: Mapping[str, Setup] = {name: Setup(name) for name in dict.fromkeys((*USUAL, *METHODS))}
LENGTH = 2000
CAMVID_LABELS, FACADE_LABELS = ("20", "45", "100", "all"), ("20", "50", "100", "all")
"""The last are all of them, from which distances are measured."""

STANDARD = strength_name(1, 1)
"""The row of the paper's own settings; α is ½."""

BOTH_INPUTS = "both inputs"


def weight_name(alpha: float) -> str:
    """The row of a weight α."""
    return STANDARD if alpha == 0.5 else f"α {alpha:g}"


SETTINGS: Mapping[str, Setup] = {
    BASELINE: Setup(BASELINE),
    **{strength_name(*strengths): one for strengths, one in BY_STRENGTH.items()},
    **{weight_name(alpha): one for alpha, one in BY_WEIGHT.items() if alpha != 0.5},
    BOTH_INPUTS: Setup("simple-phtps", changes={"train": {"batch_norm": "both"}}),
}
"""What the paper's figures vary, each alone; the last updates batch-norm statistics with perturbed inputs too."""


DRIVES = ("0001TP", "0006R0", "0016E5")

PAIRED_TABLES: dict[str, RunTable] = {
    "camvid": RunTable(
        "CamVid by drive: three drives, each held out in turn; methods, numbers of labels",
        "camvid",
        CAMVID_LABELS,
        BY_METHOD,
        length=LENGTH,
        drives=DRIVES,
        usual_rows=USUAL,
    ),
    "facade": RunTable(
        "Façades, or any folder with a validation set: methods, numbers of labels",
        "folder",
        FACADE_LABELS,
        BY_METHOD,
        length=LENGTH,
        usual_rows=USUAL,
    ),
    "camvid-settings": RunTable(
        "The paper's figures on CamVid by drive: strengths of PhTPS, weights of the loss, batch-norm statistics",
        "camvid",
        CAMVID_LABELS,
        SETTINGS,
        length=LENGTH,
        drives=DRIVES,
        usual_columns=("45",),
    ),
    "facade-settings": RunTable(
        "The paper's figures on façades: strengths of PhTPS, weights of the loss, batch-norm statistics",
        "folder",
        FACADE_LABELS,
        SETTINGS,
        length=LENGTH,
        usual_columns=("50",),
    ),
}

ALL_TABLES: dict[str, RunTable] = {**PAIRED_TABLES, **TABLES}
