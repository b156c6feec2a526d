"""Warnings about numbers that mean less than they seem to; each is empty where there is nothing to warn of."""

from __future__ import annotations

from collections.abc import Sequence

from oneway.common.words import counted, listed
from oneway.config import Config
from oneway.methods import METHODS
from oneway.tools.intervals import FEWEST, SELDOM, seldom_shown
from oneway.tools.report.facts import RunFacts

SHORT = 1000
"""Iterations: on façades, unlabelled images cost points in 300 of them and bring some in 1,000."""

SAME, ALIKE = 0.995, 0.95
"""Of pixels, and of mIoU: labels that agree so with predictions were hardly drawn apart from them."""

HELD = 0.1
"""Share of its start that a mean teacher's average may hold in the end, and still be what was learnt."""


def caution(runs: Sequence[RunFacts]) -> str:
    """That no image validates, or that numbers rest on few."""
    if not runs[0].validation_samples:
        return (
            "No image was held out (--data.holdout 0), so nothing on this page says how good the model is. See what it "
            "predicts for images that it has not learnt from."
        )
    return rests_on_few(runs)


def rests_on_few(runs: Sequence[RunFacts]) -> str:
    """That few images validate, one at the least, or that few show a class."""
    count, images = runs[0].validation_samples, _validating(runs[0])
    if (count := len({*runs[0].groups}) or count) >= FEWEST:
        return _rests_on_few_of(runs[0])
    others = "another one" if count == 1 else f"another {count}"
    ahead = ", and which run is ahead" if len(runs) > 1 else ""
    return (
        f"Every number here rests on {images}, too few to mean much: {others} could "
        f"change them by many points{ahead}. Look at the pictures, and label more images for validation."
    )


def _rests_on_few_of(run: RunFacts) -> str:
    """That a mean is largely of classes which hardly any validation image shows."""
    seldom = {} if run.drawn is None else seldom_shown(run.drawn)
    if not seldom:
        return ""
    names = [run.classes[label] for label in seldom]
    if len(names) == 1:
        (images,) = seldom.values()
        show, its, it = f"{images} {'shows' if images == 1 else 'show'} {names[0]}", "its", "it"
    else:
        show, its, it = f"fewer than {SELDOM} show {listed(names, 6, 'or')}", "their", "them"
    return (
        f"Of {_validating(run)}, {show}, too few to mean much: others could change {its} IoU, "
        f"and so the mean, by many points. Label more images that show {it}, and name some as val in dataset.yaml."
    )


def _validating(run: RunFacts) -> str:
    """How many images validate a run; by groups, where they are known: those of a group count as one."""
    images, groups = counted(run.validation_samples, "validation image"), len({*run.groups})
    return f"{counted(groups, 'group')} of {images}" if groups else images


def like_predictions(runs: Sequence[RunFacts]) -> str:
    """That the labels which judge several runs are what the first predicts, nearly everywhere."""
    first = runs[0]
    hits, pixels = int(first.confusion.trace()), int(first.confusion.sum())
    if len(runs) == 1 or first.metric != "miou" or not pixels or hits < SAME * pixels or first.value < 100 * ALIKE:
        return ""
    return (
        f"{100 * hits / pixels:.1f} % of the labelled pixels that validate are just what {first.name} predicts: if "
        "their labels began as its predictions, these numbers say nothing."
    )


def too_short(config: Config, iterations: int, gain: float) -> str:
    """That unlabelled images cost points in a run which was too short for them to help."""
    if gain >= 0:
        return ""
    if said := hardly_moved(config, iterations):
        return said
    if iterations >= SHORT:
        return ""
    return f"{counted(iterations, 'iteration')} are few: labels alone learn faster at first. Compare {SHORT:,} or more."


def hardly_moved(config: Config, iterations: int) -> str:
    """That what is scored, a mean teacher's average, still holds much of its random start."""
    decay = config.train.teacher_decay
    averaged = METHODS[config.method].teacher == "mean" and config.teacher is None and not config.train.teacher_warm_up
    if not averaged or (held := decay**iterations) <= HELD:
        return ""
    return (
        f"What is scored is the average of the weights of {config.method}, which has hardly moved: with decay "
        f"{decay:g}, it holds {100 * held:.0f} % of its start after {counted(iterations, 'iteration')}. That says "
        "nothing about unlabelled images; train longer."
    )
