"""What is said of robustness: what strong perturbations leave of each run, and on which images that was measured."""

from __future__ import annotations

from collections.abc import Sequence

from oneway.common.words import counted, listed
from oneway.tools.report.differences import shown_gain
from oneway.tools.report.facts import RunFacts
from oneway.tools.report.robustness import Robustness

CLEAR = 2.0
"""Points of mIoU: on a few images, with one draw for each, a smaller difference may be chance."""

Values = Sequence[Sequence[float]]
"""Of each run, from no perturbation to the strongest."""


def robustness_text(runs: Sequence[RunFacts], found: Robustness) -> str:
    """What the strongest perturbations leave of each run, or of the best of several; no verdict where that is close."""
    changed = _of_each(runs, found) if len(runs) <= 2 else _of_the_best(runs, found)
    text = f"At twice the paper’s strength, {changed}."
    if found.cropped_to is None:
        return text
    return (
        f"{text} Of each image, only {_part(found.cropped_to)} were measured, those around the rarest class that it "
        "shows, so scores differ from those of whole images."
    )


def _of_each(runs: Sequence[RunFacts], found: Robustness) -> str:
    names = [run.name for run in runs]
    its = names if len(runs) > 1 else ["it"]  # the second time that it is spoken of
    colours = [f"{name} from {of[0]:.1f} to {of[-1]:.1f}" for name, of in zip(names, found.photometric, strict=True)]
    warped = [f"{name} to {of[-1]:.1f}" for name, of in zip(its, found.geometric, strict=True)]
    return (
        f"changed colours bring {listed(colours, most=None)} % mIoU{_doubt(found.photometric)}; "
        f"a warp brings {listed(warped, most=None)}{_doubt(found.geometric)}"
    )


def _of_the_best(runs: Sequence[RunFacts], found: Robustness) -> str:
    return f"changed colours leave {_ahead(runs, found.photometric)}; a warp leaves {_ahead(runs, found.geometric)}"


def _ahead(runs: Sequence[RunFacts], values: Values) -> str:
    if _doubt(values):
        return "no run clearly ahead"
    best, run = max(zip((of_run[-1] for of_run in values), runs, strict=True), key=lambda pair: pair[0])
    return f"{run.name} ahead with {best:.1f} % mIoU"


def _doubt(values: Values) -> str:
    """A remark where the best of several is not clearly better than the next."""
    ends = sorted((of_run[-1] for of_run in values), reverse=True)
    return ", too close to call" if len(ends) > 1 and shown_gain(ends[1], ends[0]) < CLEAR else ""


def measurement_note(runs: Sequence[RunFacts], found: Robustness) -> str:
    """On which images robustness was measured, for the small print."""
    part = "" if found.cropped_to is None else f", {_part(found.cropped_to)} of each"
    return f"Measured on {found.images} of {counted(runs[0].validation_samples, 'validation image')}{part}."


def _part(size: tuple[int, int]) -> str:
    height, width = size
    return f"{width}×{height} pixels"
