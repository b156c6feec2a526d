"""Trains with and without unlabelled images, and says what they brought."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.run_files import CONFIG, SUMMARY
from oneway.common.words import counted, say
from oneway.config import Config
from oneway.data import list_files
from oneway.methods import METHODS
from oneway.runs import refuse_occupied
from oneway.runs.atomic import write_json
from oneway.tools.intervals import Interval
from oneway.tools.opening import Turn
from oneway.tools.report import after_training, write_report
from oneway.tools.report.cautions import rests_on_few, too_short
from oneway.tools.report.class_words import lowest_class
from oneway.tools.report.differences import shown_gain, with_other_images
from oneway.tools.report.facts import RunFacts, interval_between
from oneway.tools.report.reading import read_runs
from oneway.tools.train import train


def compare(
    configs: Sequence[Config],
    out: Path,
    console: Console,
    resume: bool = True,
    allow_changes: bool = False,
    log: Sequence[str] = (),
) -> None:
    """Train two runs in `out`, each in a folder named after its method; writes `summary.json` and `report.html` there.

    One of the configurations is supervised; they are trained in their order. Without `resume`, a run that is there is
    refused before anything is trained.
    """
    _refuse_incomparable(configs, out)
    for config in configs:
        if not resume:
            refuse_occupied(out / config.method)
    say(console, f"Two trainings: {', then '.join(config.method for config in configs)}.")
    said: set[str] = set()
    for number, config in enumerate(configs, start=1):
        folder, turn = out / config.method, Turn(f"{number} of {len(configs)}: ", said)
        again = resume and (folder / CONFIG).is_file()
        train(config, folder, again, console, allow_changes, log, turn)
    folders = [out / config.method for config in sorted(configs, key=lambda config: not _is_baseline(config))]
    baseline, chosen = read_runs(folders)
    values = {run.config.method: run.value for run in (baseline, chosen)}
    interval = interval_between(baseline, chosen)
    write_json(out / SUMMARY, {**values, "gain": chosen.value - baseline.value, "gain_interval": interval})
    for sentence in _outcome(baseline, chosen, interval):
        say(console, sentence)
    page = out / "report.html"
    with after_training(out):
        write_report(folders, page, factory=configs[0].model.factory, trained=configs[0].data)
    say(console, f"Report: {page}")


def _is_baseline(config: Config) -> bool:
    return METHODS[config.method].supervised


def _outcome(baseline: RunFacts, chosen: RunFacts, interval: Interval | None) -> Iterator[str]:
    """The scores of both, and what there is to know about their difference, which lies in an interval."""
    gain = shown_gain(baseline.value, chosen.value)
    scores = f"{baseline.value:.1f} → {chosen.value:.1f} % {chosen.metric_name}"
    cause = "with unlabelled images" if chosen.further else "and every image is labelled"
    yield f"{counted(len(chosen.labelled), 'label')}: {scores} ({gain:+.1f} {cause})"
    better = f"The better model is that of labels alone: {baseline.path}" if gain < 0 else ""
    both = [baseline, chosen]
    doubts = (with_other_images(interval), lowest_class(both), better)
    yield from filter(None, (*doubts, too_short(chosen.config, chosen.iterations, gain), rests_on_few(both)))


def _refuse_incomparable(configs: Sequence[Config], out: Path) -> None:
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UserError("A comparison is trained by one process. With torchrun, train either method by itself.")
    if (out / CONFIG).is_file():
        raise UserError(f"{out}: holds a run, whose summary would be overwritten. Choose another folder with --out.")
    if all(map(_is_baseline, configs)):
        raise UserError(
            f"--compare: {configs[0].method} uses no unlabelled images, and would be compared with labels alone. "
            "Choose another --method, or leave it out."
        )
    if configs[0].data.name == "folder" and not configs[0].data.holdout and not list_files(configs[0].data).val:
        raise UserError(
            "--compare: with --data.holdout 0 no image validates, and nothing could be compared. Leave out one of them."
        )
