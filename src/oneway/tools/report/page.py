"""Writes one self-contained page about finished runs: the result first, then what it is based on."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.run_files import MODEL, SUMMARY
from oneway.common.words import command, duration, say
from oneway.config import Data
from oneway.data import QUIET, Dataset
from oneway.data.pictures import data_uri
from oneway.ops import references
from oneway.runs import TrainedModel, data_of, load_model
from oneway.runs.atomic import refuse_unwritable, write_atomically
from oneway.tools.baseline import compared_runs
from oneway.tools.evaluate import Scores
from oneway.tools.intervals import miou_of_images
from oneway.tools.report import cautions, class_words, confusion, plots, words
from oneway.tools.report.comparable import common_images
from oneway.tools.report.differences import signed
from oneway.tools.report.facts import RunFacts, curve_titles, differing_settings
from oneway.tools.report.gain import describe_gain
from oneway.tools.report.gallery import gallery
from oneway.tools.report.next_steps import next_steps
from oneway.tools.report.reading import read_runs
from oneway.tools.report.rescore import rescore, without_predictions
from oneway.tools.report.robustness import STRENGTHS, Robustness, robustness
from oneway.tools.report.robustness_words import measurement_note, robustness_text
from oneway.tools.run_data import load_data, refuse_other_style
from oneway.tools.trained_on import about_beginning, about_predictions, compare_validating, refuse_trained_on

HERE = Path(__file__).parent
LONGEST_NAME = 80
"""Characters of a page's name."""

MOST_LISTED = 1000
"""Validation images on the page; the split names them all."""


@dataclass(frozen=True)
class Plot:
    """A drawing with its title and, where it is about one run, that run's colour."""

    title: str
    svg: Markup
    colour: int | None = None


def write_report(
    runs: list[Path],
    out: Path | None,
    *,
    factory: str | None = None,
    data: Path | None = None,
    refresh: bool = False,
    console: Console = QUIET,
    cache: Path | None = None,
    trained: Data | None = None,
) -> Path:
    """Write the page about run folders, the baseline first, and return its path; arguments as for `oneway report`.

    The folder of a comparison stands for its two runs. `trained` are the data settings of a last run that has just
    ended in this process, whose images are where they were.
    """
    facts = read_runs([run for folder in runs for run in compared_runs(folder)])
    out = out or runs[-1] / _file_name(runs)
    refuse_unwritable(out)
    models = _load_models(facts, factory)
    settings = trained or data_of(facts[-1].folder, console, data, refresh=refresh, cache=cache)
    dataset, common = _load_images(facts, models, settings, data is not None, console)
    note = ""
    again = command("oneway", "report", *(run.path for run in facts), *([] if data is None else ["--data", data]))
    # For a few images, no kernel is worth compiling. Pillow encodes without Python's lock, while plots are drawn.
    with references(), ThreadPoolExecutor() as pool:
        if common:
            facts, note = rescore(facts, models, dataset.read("val"), common)
            say(console, note)
        if doubt := about_predictions(facts[-1].validating, dataset.predicted) or cautions.like_predictions(facts):
            say(console, doubt)
        for run in facts:
            if began := about_beginning(run.path, run.folder.split, dataset, facts[-1].validating):
                say(console, began)
                doubt = " ".join(filter(None, (doubt, began)))
        page = _gather(facts, models, dataset, again, pool)
        html = _render({**page, "caution": " ".join(filter(None, (doubt, note, page["caution"])))})
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, html.encode())
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror}). Choose another file with --out.") from None
    return out


def _load_models(runs: Sequence[RunFacts], factory: str | None) -> list[TrainedModel]:
    # A CPU is fast enough for a few pictures; a GPU that has just trained is awake, and ten times faster.
    device = torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
    models = [load_model(run.folder.model_file, device, factory) for run in runs]
    for run, model in zip(runs, models, strict=True):
        if run.classes != model.classes:
            raise UserError(f"{run.path / SUMMARY}: damaged; per_class has other classes than {MODEL} beside it.")
    return models


def _load_images(
    runs: Sequence[RunFacts], models: Sequence[TrainedModel], settings: Data, elsewhere: bool, console: Console
) -> tuple[Dataset, Sequence[str]]:
    """The images that validate all runs; and the names of those that can, where each was validated by its own.

    They may lie `elsewhere` than the last run found them.
    """
    common, last, model = common_images(runs), runs[-1], models[-1]
    dataset = load_data(last.folder, model.classes, settings, console, elsewhere, common, model.masks)
    if drafts := dataset.predicted.intersection(common):
        common = without_predictions(runs, common, drafts)
        dataset = load_data(last.folder, model.classes, settings, QUIET, elsewhere, common, model.masks)
    for run, model in zip(runs, models, strict=True):
        refuse_other_style(run.path, model.image_style, dataset)
    if not elsewhere and last.config.data.task == "segmentation":
        for run in runs:
            refuse_trained_on(run.folder, dataset.read("val"))
            if not common:
                compare_validating(run.folder, dataset.read("val"), console)
    return dataset, common


def _file_name(runs: Sequence[Path]) -> str:
    """The name of a page; one about several runs does not replace that of a single run."""
    if len(runs) == 1:
        return "report.html"
    name = "-".join(["report", *(run.resolve().name for run in runs)])
    return f"{name}.html" if len(name) <= LONGEST_NAME else f"report-{len(runs)}-runs.html"


def _render(page: dict[str, Any]) -> str:
    environment = Environment(
        loader=FileSystemLoader([HERE, HERE.parent / "static"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pictures = {"data_uri": lambda picture: page["uris"][id(picture)].result()}
    environment.filters |= {"duration": duration, "unbroken": _unbroken, "marked": _marked, **pictures}
    return environment.get_template("page.html.j2").render(page=page)


def _unbroken(line: str) -> Markup:
    """A command whose lines end between its words: browsers would also end one behind a hyphen, within a flag."""
    return Markup(" ").join(Markup("<span>{}</span>").format(word) for word in line.split(" "))


def _marked(sentence: str) -> Markup:
    """A sentence in which the commands, which stand between backticks, are set as such."""
    parts = enumerate(sentence.split("`"))
    return Markup("").join(
        Markup("<code>{}</code>").format(_unbroken(part)) if at % 2 else escape(part) for at, part in parts
    )


def _gather(
    runs: list[RunFacts], models: list[TrainedModel], dataset: Dataset, again: str, pool: ThreadPoolExecutor
) -> dict[str, Any]:
    """Everything the template shows, by the name it has there; pictures are being encoded."""
    last = runs[-1]
    segmentation = last.config.data.task == "segmentation"
    perturb, crop = last.config.perturb, last.config.jitter.crop
    images = dataset.read("val") if segmentation else None
    colours = zip(models[0].classes, models[0].colours, strict=True) if segmentation else ()
    rows = gallery(images, models, perturb) if images else []
    pictures = [picture for row in rows for picture in row.pictures]
    uris = {id(picture): pool.submit(data_uri, picture, "PNG", optimize=True) for picture in pictures}
    shown = confusion.choose_classes([run.row_shares for run in runs])
    measured = robustness(images, models, crop) if images and crop else None
    gain, intervals = describe_gain(runs), [run.interval for run in runs]
    return {
        "headline": words.headline(runs),
        "lead": "" if gain.of_a_pair else words.lead(runs),
        "gain": gain,
        "caution": cautions.caution(runs),
        "subtitle": words.subtitle(runs),
        "runs": runs,
        "intervals": intervals if any(intervals) else [],
        "legend": [(name, f"rgb{colour}") for name, colour in colours],
        "rows": rows,
        "uris": uris,
        "strengths": f"photometric strength {perturb.photometric:g}, geometric {perturb.geometric:g}",
        "robustness": _robustness_plots(runs, measured) if measured else [],
        "robustness_text": robustness_text(runs, measured) if measured else "",
        "measurement_note": measurement_note(runs, measured) if measured else "",
        "curves": _curves(runs),
        "validating": _hardest_first(runs)[:MOST_LISTED],
        "about_images": [*dict.fromkeys(line for run in runs for line in run.about_images)],
        "validating_count": len(last.validating),
        "bars": _bars(runs) if last.validation_samples else None,
        "class_by_class": class_words.class_by_class(runs),
        "about_absent": class_words.about_absent(runs),
        "heat_maps": _heat_maps(runs, shown),
        "matrix_note": class_words.matrix_note(len(shown), len(last.classes)),
        "confused": _confused(runs),
        "precision": _precision(runs),
        "differences": differing_settings(runs),
        "origin": _origin(runs),
        "next_steps": next_steps(runs, segmentation),
        "command": again,
    }


def _hardest_first(runs: Sequence[RunFacts]) -> list[tuple[str, list[str]]]:
    """The images that validate, with the mIoU of each run where all have kept it; the worst of the last run first."""
    names = runs[-1].validating
    if any(run.by_image is None or run.validating != names for run in runs):
        return [(name, []) for name in names]
    values = np.stack([miou_of_images(run.by_image) for run in runs if run.by_image is not None], axis=1)
    return [
        (names[place], ["–" if np.isnan(value) else f"{value:.1f}" for value in values[place]])
        for place in np.argsort(values[:, -1], kind="stable")
    ]


def _robustness_plots(runs: Sequence[RunFacts], found: Robustness) -> list[Plot]:
    """The metric against the strength of each component, on one scale."""
    top = max(max(values) for values in (*found.photometric, *found.geometric))
    drawn = []
    for name, manner, of_runs in (
        ("photometric", "Changed colours", found.photometric),
        ("geometric", "Warped", found.geometric),
    ):
        title, axis = f"{manner}: {runs[0].metric_name}, %", f"{name} strength"
        lines = [plots.Line(STRENGTHS, values, run.colour) for run, values in zip(runs, of_runs, strict=True)]
        drawn.append(Plot(title, plots.draw_curves(f"robustness-{name}", title, axis, lines, STRENGTHS, top)))
    return drawn


def _curves(runs: Sequence[RunFacts]) -> list[Plot]:
    """The metric on validation, and every loss that some run has."""
    losses = dict.fromkeys(name for run in runs for name in run.losses)
    drawn = []
    for number, (key, title) in enumerate(curve_titles(runs[0].metric, losses).items()):
        of_runs = [(run.series(key), run.colour) for run in runs]
        lines = [plots.Line(series.iterations, series.values, colour) for series, colour in of_runs if series.values]
        if lines:
            drawn.append(Plot(title, plots.draw_curves(f"curve-{number}", title, "iteration", lines)))
    return drawn


def _bars(runs: Sequence[RunFacts]) -> Plot:
    """IoU per class; with two runs the classes are sorted by gain, else they stand in their own order."""
    gains = class_words.class_gains(*runs) if len(runs) == 2 else {}
    classes = sorted(runs[0].classes, key=lambda name: -gains.get(name, float("-inf"))) if gains else runs[0].classes
    absent = set(runs[0].absent)
    bars = [
        plots.Bars([None if name in absent else run.per_class[name] for name in classes], run.colour) for run in runs
    ]
    notes = ["absent" if name in absent else signed(gains[name]) if name in gains else "" for name in classes]
    measured = "IoU per class, %" if runs[0].metric == "miou" else "Share of a class that is recognised, %"
    title = f"{measured}, and the gain in points" if gains else measured
    return Plot(title, plots.draw_class_bars("classes", title, classes, bars, notes))


def _heat_maps(runs: Sequence[RunFacts], shown: list[int]) -> list[Plot]:
    classes = [runs[0].classes[index] for index in shown]
    drawn = []
    for index, run in enumerate(runs):
        title, shares = f"Confusion of {run.name}", run.row_shares[np.ix_(shown, shown)]
        drawing = confusion.draw_heat_map(f"confusion-{index}", title, classes, shares, run.colour)
        drawn.append(Plot(run.name, drawing, run.colour))
    return drawn


def _confused(runs: Sequence[RunFacts]) -> dict[str, list[str]]:
    """For each class of the validation images and each run: what its pixels are taken for most often."""
    found = [class_words.most_confused(run) for run in runs]
    return {
        name: [f"{other[0]} {other[1]:.1f} %" if (other := of_run[name]) else "–" for of_run in found]
        for name in class_words.present_classes(runs[0])
    }


def _precision(runs: Sequence[RunFacts]) -> dict[str, list[str]]:
    """For each class and each run: the share of the pixels taken for it that are of it."""
    found = [Scores(torch.from_numpy(run.confusion)).precision for run in runs]
    rows = zip(runs[0].classes, zip(*found, strict=True), strict=True)
    shown = {name: ["–" if value is None else f"{value:.1f} %" for value in values] for name, values in rows}
    return {name: values for name, values in shown.items() if {*values} != {"–"}}


def _origin(runs: Sequence[RunFacts]) -> dict[str, list[str]]:
    """Where each run comes from; a single value where it is the same for all."""
    rows = {
        "command": [run.environment["command"] for run in runs],
        "started": [run.environment["started"] for run in runs],
        "hardware": [run.environment["hardware"] for run in runs],
        "platform": [run.environment["platform"] for run in runs],
        "versions": [
            ", ".join(f"{name} {version}" for name, version in run.environment["versions"].items())
            + f", Python {run.environment['python']}"
            for run in runs
        ],
        "commit": [_commit(run.environment) for run in runs],
    }
    return {key: values[:1] if len(set(values)) == 1 else values for key, values in rows.items()}


def _commit(environment: dict[str, Any]) -> str:
    if environment["commit"] is None:
        return "not a source checkout"
    return environment["commit"] + (", with uncommitted changes" if environment.get("uncommitted") else "")
