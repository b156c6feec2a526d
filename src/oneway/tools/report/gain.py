"""What unlabelled images brought, or how to find out: a line of every report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oneway.common.words import command, counted
from oneway.config.recipes import recipe
from oneway.tools.baseline import BASELINE, is_baseline_of, train_command, with_method
from oneway.tools.report.cautions import hardly_moved, too_short
from oneway.tools.report.differences import shown_gain, signed, with_other_images
from oneway.tools.report.facts import RunFacts, interval_between

CONDITIONS = "with the same labels, seed and number of iterations"


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
    pairs = list(_pairs(runs))
    if not pairs:
        return _how_to_compare(runs[-1])
    if len(pairs) == 1:
        return Gain(_of_one(*pairs[0]), of_a_pair=len(runs) == 2)
    gains = [f"{run.name} {signed(shown_gain(baseline.value, run.value))}" for baseline, run in pairs]
    brought = f"What unlabelled images brought, in points of {runs[0].metric_name} over labels alone"
    return Gain(f"{brought} {CONDITIONS}: {', '.join(gains)}.")


def _of_one(baseline: RunFacts, run: RunFacts) -> str:
    gain, metric = shown_gain(baseline.value, run.value), run.metric_name
    if gain < 0 and hardly_moved(run.config, run.iterations):  # no image is to blame
        said = f"{run.name} is {-gain:.1f} points of {metric} below {baseline.name}"
    else:
        images = counted(run.further, "unlabelled image")
        cause = images if run.further else "Learning without labels too, from images that all have some,"
        verdict = f"brought {signed(gain)}" if gain > 0 else f"cost {-gain:.1f}" if gain < 0 else "changed nothing: 0.0"
        said = f"{cause} {verdict} points of {metric}"
    scores = f"{baseline.name} {baseline.value:.1f}, {run.name} {run.value:.1f}, {CONDITIONS}"
    doubt = with_other_images(interval_between(baseline, run))
    return " ".join(filter(None, (f"{said}: {scores}.", doubt, too_short(run.config, run.iterations, gain))))


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
