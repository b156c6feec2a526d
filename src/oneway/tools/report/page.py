"""Writes one self-contained page about finished runs: the result first, then what it is based on."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
from oneway.tools.report import cautions, class_words, confusion, figures, tables, words
from oneway.tools.report.comparable import common_images
from oneway.tools.report.facts import RunFacts, differing_settings
from oneway.tools.report.gain import describe_gain
from oneway.tools.report.gallery import gallery
from oneway.tools.report.next_steps import next_steps
from oneway.tools.report.reading import read_runs
from oneway.tools.report.rescore import rescore, without_predictions
from oneway.tools.report.robustness import robustness
from oneway.tools.report.robustness_words import measurement_note, robustness_text
from oneway.tools.run_data import load_data, refuse_other_style
from oneway.tools.trained_on import about_beginning, about_predictions, compare_validating, refuse_trained_on

HERE = Path(__file__).parent
LONGEST_NAME = 80
"""Characters of a page's name."""

MOST_LISTED = 1000
"""Validation images on the page; the split names them all."""


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
        "robustness": figures.robustness_plots(runs, measured) if measured else [],
        "robustness_text": robustness_text(runs, measured) if measured else "",
        "measurement_note": measurement_note(runs, measured) if measured else "",
        "curves": figures.curves(runs),
        "validating": tables.hardest_first(runs)[:MOST_LISTED],
        "about_images": [*dict.fromkeys(line for run in runs for line in run.about_images)],
        "validating_count": len(last.validating),
        "bars": figures.bars(runs) if last.validation_samples else None,
        "class_by_class": class_words.class_by_class(runs),
        "about_absent": class_words.about_absent(runs),
        "heat_maps": figures.heat_maps(runs, shown),
        "matrix_note": class_words.matrix_note(len(shown), len(last.classes)),
        "confused": tables.confused(runs),
        "precision": tables.precision(runs),
        "differences": differing_settings(runs),
        "origin": tables.origin(runs),
        "next_steps": next_steps(runs, segmentation),
        "command": again,
    }
