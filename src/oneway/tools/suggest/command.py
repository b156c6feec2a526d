"""Suggests the images to label next: those that a model cannot decide on, no two of them alike.

Images are ranked by the model's doubt, to which every class contributes the same. A contact sheet shows each of them,
and where the model contradicts itself once the image is perturbed.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

from oneway import runs
from oneway.common.bounded import open_regular
from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.run_files import SUGGESTIONS
from oneway.common.terms import SuggestBy
from oneway.common.words import say, table_cell
from oneway.data.check import contact_sheet
from oneway.data.check.contact_sheet import CELL, FAINT, fitted, heading, line, rows_of, sheet, shortened
from oneway.data.dataset import Bytes
from oneway.data.pictures import encoded
from oneway.runs.atomic import place_below, refuse_unwritable, write_atomically
from oneway.tools.annotations import AnnotationSettings, Export
from oneway.tools.explore import heat
from oneway.tools.predict import Predictor, load
from oneway.tools.suggest.candidates import Candidate, candidates_in_folder, candidates_of_run
from oneway.tools.suggest.choose import Choice, choose_among
from oneway.tools.suggest.judge import Judge, load_judge
from oneway.tools.suggest.scores import Score

ALIKE = 0.97
"""Share of the largest doubt among suggested images: where the least doubt is above it, they do not differ."""


@dataclass(frozen=True)
class Suggestions(Choice):
    """A choice, and the files that show it."""

    table: Path
    sheet: Path
    annotations: str
    """What was written for an annotation tool, in words; empty where nothing was."""


def suggest(
    path: Path,
    console: Console,
    *,
    folder: Path | None = None,
    count: int = 24,
    by: SuggestBy | None = None,
    out: Path | None = None,
    to: AnnotationSettings | None = None,
    refresh: bool = False,
    cache: Path | None = None,
    factory: str | None = None,
    device: str = "auto",
) -> Suggestions:
    """Write a table of the images to label next, and a contact sheet that shows where they are difficult.

    Arguments as for `oneway suggest`; `folder` is its `--data`, the images to choose from.
    """
    run = runs.open_run(path, any_method=True)
    home = None if to is None else out or path / f"suggest-{to.to}"
    table = home / SUGGESTIONS if home is not None else out or path / SUGGESTIONS
    _refuse_place(table, home)
    judge = load_judge(run, factory, device)
    if folder is None:
        candidates, labelled = candidates_of_run(run, judge.style, console, refresh=refresh, cache=cache)
    else:
        candidates, labelled = candidates_in_folder(folder, judge.style, judge.reduction), []
    if to is not None and any(image.path is None for image in candidates):
        raise UserError(
            f"{path}: its images are made by code, so no tool can show them. Give a folder with --data DIR."
        )
    found = choose_among(judge, candidates, labelled, count, by, console)
    if not found.chosen:
        raise UserError(f"{folder or path}: no image without labels to choose from. Give a folder with --data DIR.")
    chosen, known = found.chosen, {candidate.name: candidate for candidate in candidates}
    images = [known[score.name] for score in chosen]
    written = ""
    if to is not None and home is not None:
        model = load(path, device, factory)
        written = _pre_annotate(model, images, to.export(model, home), console)
    cells, divergences = _perturb(judge, chosen, images, console)
    if by != "features" and (note := _about_order(chosen)):
        say(console, f"Note: {note}")
    picture = table.with_suffix(".png")
    table.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(table, to_csv(chosen, images, divergences).encode(errors="surrogateescape"))
    write_atomically(picture, draw_sheet(cells))
    return Suggestions(chosen, found.alike, found.unreadable, found.among, table, picture, written)


def _about_order(chosen: Sequence[Score]) -> str:
    """A note where doubt hardly differs between the images that were chosen; else nothing."""
    least, most = (kind(score.doubt for score in chosen) for kind in (min, max))
    if len(chosen) < 2 or least <= ALIKE * most:
        return ""
    return (
        f"the model is about as unsure of one image as of the next (doubt {least:.2f} to {most:.2f}), so that doubt "
        "hardly orders them. A model that is trained longer tells them apart better."
    )


def _perturb(
    judge: Judge, chosen: Sequence[Score], images: Sequence[Candidate], console: Console
) -> tuple[list[Image.Image], list[float]]:
    """A cell of the contact sheet for each image, and how far the model contradicts itself on it."""
    cells, divergences = [], []
    with progress_bar(console, "Perturbing those chosen", len(chosen)) as advance:
        for rank, (score, image) in enumerate(zip(chosen, images, strict=True), start=1):
            pixels = np.asarray(image.read())
            kl, where, doubt = judge.contradiction(pixels)
            bright = brightness(where, doubt)
            cells.append(cell(pixels, bright, f"{rank}.  {score.name}", reason(score), f"KL {kl:.2f}"))
            divergences.append(kl)
            advance()
    return cells, divergences


def to_csv(chosen: Sequence[Score], images: Sequence[Candidate], divergences: Sequence[float]) -> str:
    """A line for each image: rank, name, what it was taken by, the model's doubt and divergence, and its file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "image", "score", "distance", "worth", "doubt", "kl", "path"])
    for rank, (score, image, kl) in enumerate(zip(chosen, images, divergences, strict=True), start=1):
        values = (score.value, score.distance, score.worth, score.doubt, kl)
        figures = ("" if value is None else f"{value:.4f}" for value in values)
        writer.writerow([rank, table_cell(score.name), *figures, image.path or ""])
    return text.getvalue()


def reason(score: Score) -> str:
    """What an image was taken by: the score alone would contradict the order."""
    if score.worth is None or score.distance is None:
        return f"score {score.value:.2f}, most typical"
    return f"worth {score.worth:.2f}: score {score.value:.2f}, distance {score.distance:.2f}"


def brightness(kl: Tensor, doubt: Tensor) -> Tensor:
    """H×W colours of the scale: of the divergence, or of the doubt (1 is the most there is) where that is brighter.

    A model that has learnt nothing yet contradicts itself nowhere, and is unsure everywhere.
    """
    return torch.maximum(heat.levels(kl), (doubt.clamp(0, 1) * (heat.LEVELS - 1)).round().to(torch.uint8))


def cell(pixels: Bytes, where: Tensor, name: str, *found: str) -> Image.Image:
    """An H×W×3 picture, how bright the map below it is, its name, and what was found."""
    image = Image.fromarray(pixels)
    coloured = Image.fromarray(heat.colours()[where.numpy()])
    pictures = [one.resize(fitted(*image.size), Image.Resampling.LANCZOS) for one in (image, coloured)]
    return contact_sheet.cell(
        pictures, [line(shortened(name, 14, CELL[0]), 14), *(line(each, 13, FAINT) for each in found)]
    )


def draw_sheet(cells: Sequence[Image.Image]) -> bytes:
    """The cells under a heading, as the content of a PNG file."""
    title = f"Label these {len(cells)} next" if len(cells) > 1 else "Label this next"
    meaning = "Brighter: the model is less sure, or slight changes of the image change its mind"
    return encoded(sheet([heading(title, meaning), *rows_of(cells)]), "PNG")


def _refuse_place(table: Path, home: Path | None) -> None:
    """Refuse a folder with other content, where labels that someone has corrected would be lost; or a bad file."""
    if home is not None and home.exists() and (not home.is_dir() or any(home.iterdir())):
        there = "holds earlier suggestions, perhaps corrected ones" if table.is_file() else "exists"
        raise UserError(f"{home}: {there}, and nothing is overwritten. Choose another folder with --out.")
    if table.suffix.lower() != ".csv":
        raise UserError(f"--out {table}: the table is a .csv file; the contact sheet gets the same name with .png.")
    refuse_unwritable(table)


def _pre_annotate(model: Predictor, images: Sequence[Candidate], export: Export, console: Console) -> str:
    """Copy images, each of which has a file, beside what a model predicts for them; returns a sentence about it."""
    names = [PurePosixPath(*(part for part in Path(image.name).parts if part not in ("..", "/"))) for image in images]
    count = Counter(name.with_suffix("").as_posix().casefold() for name in names)
    with progress_bar(console, f"Predicting for {export.settings.to}", len(images)) as advance:
        for image, name in zip(images, names, strict=True):
            assert image.path is not None
            copy = place_below(export.folder, (export.writer.images / name).as_posix())
            with open_regular(image.path) as file:
                write_atomically(copy, file.read())
            stem = name.with_suffix("") if count[name.with_suffix("").as_posix().casefold()] == 1 else name
            export.add(copy.absolute(), name.as_posix(), stem.as_posix(), model.predict(image.path))
            advance()
    return export.finish()
