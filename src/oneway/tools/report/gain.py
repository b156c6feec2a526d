"""What unlabelled images brought, or how to find out: a line of every report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oneway.common.words import command, counted
from oneway.config.recipes import recipe
from oneway.tools.baseline import BASELINE, is_baseline_of, train_command, with_method
from oneway.tools.report.facts import RunFacts, interval_between
from oneway.tools.report.words import hardly_moved, shown_gain, signed, too_short, with_other_images


@dataclass(frozen=True)
class Gain:
    """A sentence, and the commands that it asks for."""

    text: str
    commands: tuple[str, ...] = ()
    of_a_pair: bool = False
    """Whether it says what one run gained over the other, and under which conditions."""

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"    {line}" for line in self.commands)])


def describe_gain(runs: Sequence[RunFacts]) -> Gain:
    """What unlabelled images brought where a run has its baseline beside it; else how to have them compared."""
    compared = list(_pairs(runs))
    if not compared:
        return _how_to_compare(runs[-1])
    same = "with the same labels, seed and number of iterations"
    metric = runs[0].metric_name
    if len(compared) == 1:
        ((baseline, run),) = compared
        gain = shown_gain(baseline.value, run.value)
        verdict = f"brought {signed(gain)}" if gain > 0 else f"cost {-gain:.1f}" if gain < 0 else "changed nothing: 0.0"
        images = counted(run.further, "unlabelled image")
        what = images if run.further else "Learning without labels too, from images that all have some,"
        caution = too_short(run.config, run.iterations, gain)
        if gain < 0 and hardly_moved(run.config, run.iterations):  # no image is to blame
            what, verdict = run.name, f"is {-gain:.1f}"
            metric = f"{metric} below {baseline.name}"
        scores = f"{baseline.name} {baseline.value:.1f}, {run.name} {run.value:.1f}, {same}."
        doubt = with_other_images(interval_between(baseline, run))
        said = (f"{what} {verdict} points of {metric}: {scores}", doubt, caution)
        return Gain(" ".join(filter(None, said)), of_a_pair=len(runs) == 2)
    gains = [f"{run.name} {signed(shown_gain(baseline.value, run.value))}" for baseline, run in compared]
    return Gain(f"What unlabelled images brought, in points of {metric} over labels alone {same}: {', '.join(gains)}.")


def _pairs(runs: Sequence[RunFacts]) -> Iterator[tuple[RunFacts, RunFacts]]:
    """Each run that used unlabelled images, after the one that differs from it in nothing else; where there is one."""
    for run in runs:
        for other in sorted(runs, key=lambda other: other.config.method != BASELINE):
            same = (other.labelled, other.iterations) == (run.labelled, run.iterations)
            if same and is_baseline_of(other.config, run.config):
                yield other, run
                break


def _how_to_compare(run: RunFacts) -> Gain:
    if not run.validation_samples:
        return Gain("What unlabelled images brought cannot be told where no image validates.")
    if run.semi_supervised:
        beside = f"{run.path}-{BASELINE}"
        what = "unlabelled images" if run.further else run.config.method
        why = "" if run.further else "No image is without labels. "
        return Gain(
            f"{why}What {what} brought over labels alone is not known: nothing was compared. "
            f"`{command('oneway', 'train', '--compare')}` trains both; to train only what is missing, and put both "
            "runs on one page:",
            (
                train_command(with_method(run.config), "--out", beside),
                command("oneway", "report", beside, run.path),
            ),
        )
    usual = recipe(run.config.recipe).method
    if not run.further:
        return Gain("No image is without labels, and nothing was compared.")
    return Gain(
        "No unlabelled image was used, and nothing was compared. What they would bring:",
        (train_command(with_method(run.config, usual), "--compare", "--out", f"{run.path}-compare"),),
    )
