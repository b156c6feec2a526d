"""Trains with and without unlabelled images, and says what they brought."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.run_files import CONFIG, SUMMARY
from oneway.common.words import counted, say
from oneway.config import Config
from oneway.data import list_files
from oneway.methods import METHODS
from oneway.runs import refuse_occupied
from oneway.runs.atomic import write_json
from oneway.tools.evaluate import METRIC_NAMES
from oneway.tools.opening import Turn
from oneway.tools.report import after_training, write_report
from oneway.tools.report.cautions import rests_on_few, too_short
from oneway.tools.report.class_words import lowest_class
from oneway.tools.report.differences import shown_gain, with_other_images
from oneway.tools.report.facts import interval_between, read_runs
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
    names = [config.method for config in configs]
    say(console, f"Two trainings: {', then '.join(names)}.")
    summaries: dict[str, Any] = {}
    said: set[str] = set()
    for number, config in enumerate(configs, start=1):
        folder, turn = out / config.method, Turn(f"{number} of {len(configs)}: ", said)
        again = resume and (folder / CONFIG).is_file()
        summaries[config.method] = train(config, folder, again, console, allow_changes, log, turn)
    baseline, chosen = sorted(configs, key=lambda config: not METHODS[config.method].supervised)
    values = {config.method: summaries[config.method]["value"] for config in (baseline, chosen)}
    before, after = values.values()
    folders, page = [out / config.method for config in (baseline, chosen)], out / "report.html"
    facts = read_runs(folders)
    interval = interval_between(*facts)
    write_json(out / SUMMARY, {**values, "gain": after - before, "gain_interval": interval})
    last, gain = summaries[chosen.method], shown_gain(before, after)
    cause = "with unlabelled images" if facts[-1].further else "and every image is labelled"
    say(
        console,
        f"{counted(last['labels'], 'label')}: {before:.1f} → {after:.1f} % {METRIC_NAMES[last['metric']]} "
        f"({gain:+.1f} {cause})",
    )
    better = f"The better model is that of labels alone: {folders[0]}" if gain < 0 else ""
    cautions = too_short(chosen, last["iterations"], gain), rests_on_few(facts)
    for sentence in filter(None, (with_other_images(interval), lowest_class(facts), better, *cautions)):
        say(console, sentence)
    with after_training(out):
        write_report(folders, page, factory=configs[0].model.factory, trained=configs[0].data)
    say(console, f"Report: {page}")


def _refuse_incomparable(configs: Sequence[Config], out: Path) -> None:
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UserError("A comparison is trained by one process. With torchrun, train either method by itself.")
    if (out / CONFIG).is_file():
        raise UserError(f"{out}: holds a run, whose summary would be overwritten. Choose another folder with --out.")
    if all(METHODS[config.method].supervised for config in configs):
        raise UserError(
            f"--compare: {configs[0].method} uses no unlabelled images, and would be compared with labels alone. "
            "Choose another --method, or leave it out."
        )
    if configs[0].data.name == "folder" and not configs[0].data.holdout and not list_files(configs[0].data).val:
        raise UserError(
            "--compare: with --data.holdout 0 no image validates, and nothing could be compared. Leave out one of them."
        )
