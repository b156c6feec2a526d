"""The sentences of the page: what a person would say about these numbers, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oneway.common.words import counted, listed
from oneway.config import Config
from oneway.methods import METHODS
from oneway.tools.intervals import FEWEST, SELDOM, Interval, seldom_shown
from oneway.tools.report.confusion import NAMED
from oneway.tools.report.facts import RunFacts, interval_between
from oneway.tools.report.robustness import Robustness

MINUS = "−"
CLEAR = 2.0
"""Points of mIoU: on a few images, with one draw for each, a smaller difference may be chance."""

SHORT = 1000
"""Iterations: on façades, unlabelled images cost points in 300 of them and bring some in 1,000."""

SAME, ALIKE = 0.995, 0.95
"""Of pixels, and of mIoU: labels that agree so with predictions were hardly drawn apart from them."""

HELD = 0.1
"""Share of its start that a mean teacher's average may hold in the end, and still be what was learnt."""


@dataclass(frozen=True)
class Phrase:
    """A piece of a sentence, in a run's colour where it speaks of that run."""

    text: str
    colour: int | None = None


def headline(runs: Sequence[RunFacts]) -> list[Phrase]:
    """The answer in one sentence."""
    first, last = runs[0], runs[-1]
    if len(runs) > 2:
        best = max(runs, key=lambda run: run.value)
        return [
            Phrase(f"{counted(len(best.labelled), 'label')}: {best.name} is the best of {len(runs)} with "),
            Phrase(f"{best.value:.1f}\N{NO-BREAK SPACE}% {best.metric_name}", best.colour),
        ]
    counts = list(dict.fromkeys(len(run.labelled) for run in runs))
    given = Phrase(f"{counted(counts, 'label', joint=' → ')}: ")
    if not last.validation_samples:
        return [given, Phrase("no score", last.colour)]
    result = Phrase(f"{last.value:.1f}\N{NO-BREAK SPACE}% {last.metric_name}", last.colour)
    before = [Phrase(f"{first.value:.1f}", first.colour), Phrase(" → ")] if len(runs) > 1 else []
    return [given, *before, result]


def lead(runs: Sequence[RunFacts]) -> str:
    """What the later runs gained over the first, and under which conditions."""
    baseline, others = runs[0], runs[1:]
    if not others:
        given = counted(len(baseline.labelled), "label")
        trained = f"{baseline.name}, trained on {listed([given, *further_images(runs)])}."
        if (found := baseline.interval) is None:
            return trained
        return (
            f"{trained} With other validation images like these, {baseline.metric_name} would lie between "
            f"{found[0]:.1f} and {found[1]:.1f} (95\N{NO-BREAK SPACE}% interval)."
        )
    gains = [shown_gain(baseline.value, other.value) for other in others]
    if len(others) > 1:
        points = ", ".join(f"{other.name} {signed(gain)}" for other, gain in zip(others, gains, strict=True))
        further = "".join(f"; the semi-supervised ones use {images}" for images in further_images(runs))
        conditions = f"The runs have {listed(shared(runs))}{further}."
        return f"Points of {baseline.metric_name} over {baseline.name}: {points}. {conditions}"
    conditions = listed([*shared(runs), *_further_of(baseline, others[0])])
    gain = gains[0]
    verdict = f"{-gain:.1f} points worse than" if gain < 0 else "no better and no worse than"
    worse = f"{others[0].name} is {verdict} {baseline.name}, with {conditions}."
    said = f"{signed(gain)} points from {conditions}." if gain > 0 else worse
    return f"{said} {with_other_images(interval_between(baseline, others[0]))}".rstrip()


def caution(runs: Sequence[RunFacts]) -> str:
    """A warning where so few images validate that the numbers mean little; else nothing."""
    if not runs[0].validation_samples:
        return (
            "No image was held out (--data.holdout 0), so nothing on this page says how good the model is. See what it "
            "predicts for images that it has not learnt from."
        )
    return rests_on_few(runs)


def rests_on_few(runs: Sequence[RunFacts]) -> str:
    """A warning where so few images validate, one at the least, or show a class, that numbers mean little."""
    count, compared = runs[0].validation_samples, len(runs) > 1
    if count >= FEWEST:
        return _rests_on_few_of(runs[0])
    others = "another one" if count == 1 else f"another {count}"
    ahead = ", and which run is ahead" if compared else ""
    return (
        f"Every number here rests on {counted(count, 'validation image')}, too few to mean much: {others} could "
        f"change them by many points{ahead}. Look at the pictures, and label more images for validation."
    )


def _rests_on_few_of(run: RunFacts) -> str:
    """A warning where a mean is largely of classes that hardly any validation image shows; else nothing."""
    if run.by_image is None or not (seldom := seldom_shown(run.by_image)):
        return ""
    names, images = [run.classes[label] for label in seldom], [*seldom.values()]
    if len(names) == 1:
        show = f"{images[0]} {'shows' if images[0] == 1 else 'show'} {names[0]}"
    else:
        show = f"fewer than {SELDOM} show {listed(names, 6, 'or')}"
    its, it = ("its", "it") if len(names) == 1 else ("their", "them")
    return (
        f"Of {run.validation_samples} validation images, {show}, too few to mean much: others could change {its} IoU, "
        f"and so the mean, by many points. Label more images that show {it}, and name some as val in dataset.yaml."
    )


def with_other_images(difference: Interval | None) -> str:
    """How far the difference of two runs hangs on the images that validate; nothing where that is not known."""
    if difference is None:
        return ""
    low, high = difference
    close = ": too close to call" if low <= 0 <= high else ""
    return (
        f"With other validation images like these, the difference would lie between {signed(low)} and {signed(high)} "
        f"(95\N{NO-BREAK SPACE}% interval){close}."
    )


def like_predictions(runs: Sequence[RunFacts]) -> str:
    """A caution where the labels that judge runs are what the first predicts, nearly everywhere; else nothing."""
    first = runs[0]
    hits, pixels = int(first.confusion.trace()), int(first.confusion.sum())
    if len(runs) == 1 or first.metric != "miou" or not pixels or hits < SAME * pixels or first.value < 100 * ALIKE:
        return ""
    return (
        f"{100 * hits / pixels:.1f} % of the labelled pixels that validate are just what {first.name} predicts: if "
        "their labels began as its predictions, these numbers say nothing."
    )


def hardly_moved(config: Config, iterations: int) -> str:
    """A caution where what is scored, a mean teacher's average, still holds much of its random start; else nothing."""
    decay = config.train.teacher_decay
    averaged = METHODS[config.method].teacher == "mean" and config.teacher is None and not config.train.teacher_warm_up
    if not averaged or (held := decay**iterations) <= HELD:
        return ""
    return (
        f"What is scored is the average of the weights of {config.method}, which has hardly moved: with decay "
        f"{decay:g}, it holds {100 * held:.0f} % of its start after {counted(iterations, 'iteration')}. That says "
        "nothing about unlabelled images; train longer."
    )


def too_short(config: Config, iterations: int, gain: float) -> str:
    """A caution where unlabelled images cost points in a run too short for them to help; else nothing."""
    if gain < 0 and (said := hardly_moved(config, iterations)):
        return said
    if gain >= 0 or iterations >= SHORT:
        return ""
    return f"{counted(iterations, 'iteration')} are few: labels alone learn faster at first. Compare {SHORT:,} or more."


def shared(runs: Sequence[RunFacts]) -> list[str]:
    """Whether the runs had the same labelled images and as many iterations."""
    same_labels = all(run.labelled == runs[0].labelled for run in runs)
    same_iterations = all(run.iterations == runs[0].iterations for run in runs)
    return [
        f"the same {counted(len(runs[0].labelled), 'label')}" if same_labels else "different labelled images",
        "the same number of iterations" if same_iterations else "different numbers of iterations",
    ]


def further_images(runs: Sequence[RunFacts]) -> list[str]:
    """The images that semi-supervised runs used beside the labelled ones, as a phrase; none if no run did."""
    counts = sorted({run.further for run in runs if run.semi_supervised})
    return [f"{counted(counts, 'further image', joint=' or ')} without labels"] if counts else []


def _further_of(baseline: RunFacts, other: RunFacts) -> list[str]:
    """What a run has of images without labels that its baseline has not, as a phrase; none where that is nothing."""
    if not baseline.semi_supervised:
        return further_images([other])
    if not other.semi_supervised or other.further == baseline.further:
        return []
    return [f"{counted([other.further, baseline.further], 'further image', joint=' instead of ')} without labels"]


def subtitle(runs: Sequence[RunFacts]) -> list[str]:
    """The facts beneath the headline, to be set in one line."""
    facts = [
        " / ".join(dict.fromkeys(run.config.recipe for run in runs)),
        counted([len(run.labelled) for run in runs], "labelled", "labelled"),
        counted([run.further for run in runs], "unlabelled image"),
        counted([run.iterations for run in runs], "iteration"),
        f"seed {' / '.join(dict.fromkeys(str(run.config.seed) for run in runs))}",
    ]
    shown = _validation_images(runs[0]) if runs[0].validation_samples else "no validation image"
    return [*facts, f"the last iteration’s model on {shown}"]


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


def lowest_class(runs: Sequence[RunFacts]) -> str:
    """The class that the last run sees worst: a mean with an easy background hides it. Nothing where there is none."""
    last = runs[-1]
    values = {name: value for name, value in last.per_class.items() if value is not None}
    if last.metric != "miou" or len(values) < 2:
        return ""
    name = min(values, key=values.__getitem__)
    shown = " → ".join(f"{value:.1f}" for run in runs if (value := run.per_class[name]) is not None)
    return f"Of the classes, {name} has the lowest IoU: {shown}\N{NO-BREAK SPACE}%."


def robustness_text(runs: Sequence[RunFacts], found: Robustness) -> str:
    """What the strongest perturbations leave of each run, or of the best of several; no verdict where that is close."""
    colours = [f"{name} from {values[0]:.1f} to {values[-1]:.1f}" for name, values in _named(runs, found.photometric)]
    named = _named(runs, found.geometric)
    warped = [f"{name if len(runs) > 1 else 'it'} to {values[-1]:.1f}" for name, values in named]
    if len(runs) > 2:
        changed = (
            f"changed colours leave {_ahead(runs, found.photometric)}; a warp leaves {_ahead(runs, found.geometric)}"
        )
    else:
        changed = (
            f"changed colours bring {listed(colours, most=None)} % mIoU{_doubt(found.photometric)}; "
            f"a warp brings {listed(warped, most=None)}{_doubt(found.geometric)}"
        )
    part = (
        f" Of each image, only {_part(found)} were measured, those around the rarest class that it shows, so scores "
        "differ from those of whole images."
    )
    return f"At twice the paper’s strength, {changed}.{'' if found.cropped_to is None else part}"


def measurement_note(runs: Sequence[RunFacts], found: Robustness) -> str:
    """On which images robustness was measured, for the small print."""
    part = "" if found.cropped_to is None else f", {_part(found)} of each"
    return f"Measured on {found.images} of {_validation_images(runs[0])}{part}."


def _part(found: Robustness) -> str:
    height, width = found.cropped_to or (0, 0)
    return f"{width}×{height} pixels"


def _validation_images(run: RunFacts) -> str:
    return counted(run.validation_samples, "validation image")


def _named(runs: Sequence[RunFacts], values: Sequence[Sequence[float]]) -> list[tuple[str, Sequence[float]]]:
    return [(run.name, of_run) for run, of_run in zip(runs, values, strict=True)]


def _ahead(runs: Sequence[RunFacts], values: Sequence[Sequence[float]]) -> str:
    if _doubt(values):
        return "no run clearly ahead"
    name, best = max(_named(runs, values), key=lambda pair: pair[1][-1])
    return f"{name} ahead with {best[-1]:.1f} % mIoU"


def _doubt(values: Sequence[Sequence[float]]) -> str:
    """A remark where the best of several is not clearly better than the next."""
    ends = sorted((of_run[-1] for of_run in values), reverse=True)
    return ", too close to call" if len(ends) > 1 and shown_gain(ends[1], ends[0]) < CLEAR else ""


def class_gains(baseline: RunFacts, other: RunFacts) -> dict[str, float]:
    """Points of IoU per class that occurs in the validation images."""
    pairs = {name: (baseline.per_class[name], other.per_class[name]) for name in present_classes(baseline)}
    return {name: shown_gain(a, b) for name, (a, b) in pairs.items() if a is not None and b is not None}


def matrix_note(shown: int, classes: int) -> str:
    """How to read a confusion matrix of many classes; nothing where it is plain."""
    fewer = f" Of {classes} classes, the {shown} with the largest confusions are shown." if shown < classes else ""
    return f"Columns have the numbers of the rows.{fewer}" if shown > NAMED else ""


def most_confused(run: RunFacts) -> dict[str, tuple[str, float] | None]:
    """For each class the other class its pixels are given most often, and their percentage; None if there is none."""
    shares = run.row_shares
    np.fill_diagonal(shares, 0)
    found = zip(run.classes, shares.argmax(axis=1), shares.max(axis=1), strict=True)
    return {name: (run.classes[other], 100 * float(share)) if share > 0 else None for name, other, share in found}


def present_classes(run: RunFacts) -> list[str]:
    """Classes that occur in the validation images."""
    return [name for name in run.classes if name not in run.absent]


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


def shown_gain(before: float, after: float) -> float:
    """The difference of two values as they are printed, to a tenth: a reader will subtract them."""
    return round(round(after, 1) - round(before, 1), 1) + 0.0  # which makes −0 a 0


def signed(points: float) -> str:
    """A difference with its sign, to a tenth."""
    rounded = round(points, 1)
    return f"{MINUS if rounded < 0 else '+' if rounded > 0 else '±'}{abs(rounded):.1f}"
