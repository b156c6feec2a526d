"""What is said of single classes: which gained and lost, which is the lowest, and what each is taken for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oneway.common.words import counted, listed
from oneway.tools.report.confusion import NAMED
from oneway.tools.report.differences import shown_gain, signed
from oneway.tools.report.facts import RunFacts


def class_by_class(runs: Sequence[RunFacts]) -> str:
    """Which classes gained and lost most between two runs; nothing for one run or several."""
    if len(runs) != 2:
        return ""
    gains = sorted(class_gains(*runs).items(), key=lambda item: item[1], reverse=True)
    if not gains:
        return ""
    (best, most), (worst, least) = gains[0], gains[-1]
    better = sum(gain > 0 for _, gain in gains)
    verb = "is" if better == 1 else "are"
    sentence = f"{better} of {counted(len(gains), 'class', 'classes')} {verb} better with {runs[1].name}."
    if most > 0:
        sentence += f" The largest gain is {best} ({signed(most)})"
        sentence += f", the largest loss {worst} ({signed(least)})." if least < 0 else "; no class loses."
    return sentence


def class_gains(baseline: RunFacts, other: RunFacts) -> dict[str, float]:
    """Points of IoU per class that occurs in the validation images."""
    pairs = {name: (baseline.per_class[name], other.per_class[name]) for name in present_classes(baseline)}
    return {name: shown_gain(a, b) for name, (a, b) in pairs.items() if a is not None and b is not None}


def lowest_class(runs: Sequence[RunFacts]) -> str:
    """The class that the last run sees worst: a mean with an easy background hides it. Nothing where there is none."""
    last = runs[-1]
    values = {name: value for name, value in last.per_class.items() if value is not None}
    if last.metric != "miou" or len(values) < 2:
        return ""
    name = min(values, key=values.__getitem__)
    shown = " → ".join(f"{value:.1f}" for run in runs if (value := run.per_class[name]) is not None)
    return f"Of the classes, {name} has the lowest IoU: {shown}\N{NO-BREAK SPACE}%."


def about_absent(runs: Sequence[RunFacts]) -> str:
    """How classes without a validation pixel are counted; nothing where there is none."""
    if runs[0].metric != "miou" or not any(run.absent for run in runs):
        return ""
    note = (
        "A class without a pixel in the validation images is absent, and not in the mean; pixels that are taken for it "
        "are errors of the classes they have."
    )
    earlier = [run.name for run in runs if any(run.per_class[name] is not None for name in run.absent)]
    return f"{note} In the mean of {listed(earlier)}, by an earlier version, it counts as zero." if earlier else note


def present_classes(run: RunFacts) -> list[str]:
    """Classes that occur in the validation images."""
    return [name for name in run.classes if name not in run.absent]


def most_confused(run: RunFacts) -> dict[str, tuple[str, float] | None]:
    """For each class the other class its pixels are given most often, and their percentage; None if there is none."""
    shares = run.row_shares
    np.fill_diagonal(shares, 0)
    found = zip(run.classes, shares.argmax(axis=1), shares.max(axis=1), strict=True)
    return {name: (run.classes[other], 100 * float(share)) if share > 0 else None for name, other, share in found}


def matrix_note(shown: int, classes: int) -> str:
    """How to read a confusion matrix of many classes; nothing where it is plain."""
    fewer = f" Of {classes} classes, the {shown} with the largest confusions are shown." if shown < classes else ""
    return f"Columns have the numbers of the rows.{fewer}" if shown > NAMED else ""
