"""The sentences at the top of the page: what a person would say about these runs, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oneway.common.words import counted, listed
from oneway.tools.report.class_words import lowest_class
from oneway.tools.report.differences import shown_gain, signed, with_other_images
from oneway.tools.report.facts import RunFacts, interval_between


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
        given = counted(len(best.labelled), "label")
        return [Phrase(f"{given}: {best.name} is the best of {len(runs)} with "), _score(best)]
    given = counted([len(run.labelled) for run in runs], "label", joint=" → ")
    if not last.validation_samples:
        return [Phrase(f"{given}: "), Phrase("no score", last.colour)]
    before = [Phrase(f"{first.value:.1f}", first.colour), Phrase(" → ")] if len(runs) > 1 else []
    return [Phrase(f"{given}: "), *before, _score(last)]


def _score(run: RunFacts) -> Phrase:
    return Phrase(f"{run.value:.1f}\N{NO-BREAK SPACE}% {run.metric_name}", run.colour)


def lead(runs: Sequence[RunFacts]) -> str:
    """What the later runs gained over the first, and how; of one run, its worst class, and how sure its score is."""
    first, *others = runs
    match others:
        case []:
            return _about_one(first)
        case [other]:
            return _about_two(first, other)
    return _about_several(first, others)


def _about_one(run: RunFacts) -> str:
    given = listed([counted(len(run.labelled), "label"), *_further_images([run])])
    trained = f"{run.name}, trained on {given}. {lowest_class([run])}".rstrip()
    if (found := run.interval) is None:
        return trained
    return (
        f"{trained} With other validation images like these, {run.metric_name} would lie between "
        f"{found[0]:.1f} and {found[1]:.1f} (95\N{NO-BREAK SPACE}% interval)."
    )


def _about_two(baseline: RunFacts, other: RunFacts) -> str:
    gain = shown_gain(baseline.value, other.value)
    conditions = listed([*_shared([baseline, other]), *_further_of(baseline, other)])
    if gain > 0:
        said = f"{signed(gain)} points from {conditions}."
    else:
        verdict = f"{-gain:.1f} points worse than" if gain < 0 else "no better and no worse than"
        said = f"{other.name} is {verdict} {baseline.name}, with {conditions}."
    return f"{said} {with_other_images(interval_between(baseline, other))}".rstrip()


def _about_several(baseline: RunFacts, others: Sequence[RunFacts]) -> str:
    points = ", ".join(f"{run.name} {signed(shown_gain(baseline.value, run.value))}" for run in others)
    runs = [baseline, *others]
    further = "".join(f"; the semi-supervised ones use {images}" for images in _further_images(runs))
    conditions = f"The runs have {listed(_shared(runs))}{further}."
    return f"Points of {baseline.metric_name} over {baseline.name}: {points}. {conditions}"


def _shared(runs: Sequence[RunFacts]) -> list[str]:
    """Whether the runs had the same labelled images and as many iterations."""
    same_labels = all(run.labelled == runs[0].labelled for run in runs)
    same_iterations = all(run.iterations == runs[0].iterations for run in runs)
    return [
        f"the same {counted(len(runs[0].labelled), 'label')}" if same_labels else "different labelled images",
        "the same number of iterations" if same_iterations else "different numbers of iterations",
    ]


def _further_images(runs: Sequence[RunFacts]) -> list[str]:
    """The images that semi-supervised runs used beside the labelled ones, as a phrase; none if no run did."""
    counts = sorted({run.further for run in runs if run.semi_supervised})
    return [f"{counted(counts, 'further image', joint=' or ')} without labels"] if counts else []


def _further_of(baseline: RunFacts, other: RunFacts) -> list[str]:
    """What a run has of images without labels that its baseline has not, as a phrase; none where that is nothing."""
    if not baseline.semi_supervised:
        return _further_images([other])
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
    count = runs[0].validation_samples
    judged_by = counted(count, "validation image") if count else "no validation image"
    return [*facts, f"the last iteration’s model on {judged_by}"]
