"""`oneway suggest`: which images to label next.

A model that says one thing about an image and another about the same image perturbed has not understood it: images are
ranked by how much the two differ, and no two that look alike are suggested.

Shapes: N draws of one image of H×W pixels, C classes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from oneway import data
from oneway import run as runs
from oneway.atomic import write_atomically
from oneway.config import MODEL_FOR, SEGMENTERS, Perturb
from oneway.data.check.contact_sheet import CELL, COLUMNS, GAP, MARGIN
from oneway.data.check.duplicates import ALIKE, nearest
from oneway.data.check.survey import survey
from oneway.data.check.typeset import FAINT, PAPER, column, line, row, shortened
from oneway.data.dataset import Bytes, Item
from oneway.data.decode.images import read_image
from oneway.data.folder.files import find
from oneway.draws import PerturbationDraw, draw_perturbation, each_column
from oneway.errors import UserError
from oneway.explore import heat
from oneway.explore.compute import kl_map, logits_of, masked_means, probabilities_of
from oneway.explore.images import fit
from oneway.losses import upsample
from oneway.perturb import Perturbation, phtps

DRAWS = 4
SEED = 0
"""Every image meets the same four perturbations, so that chance favours none."""

MOST_PIXELS = 2**21
MOST_VALUES = 2**26
"""Of one prediction: 256 MiB."""


@dataclass(frozen=True)
class Candidate:
    """An image without labels, not yet decoded."""

    name: str
    read: Callable[[], Bytes]


@dataclass(frozen=True)
class Score:
    """What a model says about one image."""

    name: str
    kl: float
    """Mean over draws and valid pixels."""

    fingerprint: bytes


@dataclass(frozen=True)
class Suggestions:
    """Which images to label next, best first, and what was left out."""

    chosen: tuple[Score, ...]
    alike: int
    """Images that were left out because they look like one that is suggested or labelled."""

    unreadable: tuple[str, ...]
    """Why single files could not be used."""

    table: Path
    sheet: Path


def suggest(
    path: Path, console: Console, *, folder: Path | None = None, count: int = 24, out: Path | None = None
) -> Suggestions:
    """Writes a table of images that should be labelled next, and a contact sheet that shows where they are difficult.

    Args:
        path: Run folder.
        console: Shows progress.
        folder: Images to choose from; by default the run's own that have no labels.
        count: How many.
        out: The table, a CSV file; by default suggest.csv in the run folder. The sheet lies beside it, as PNG.
    """
    run = runs.open_run(path)
    if MODEL_FOR[run.config.data.name] is not SEGMENTERS:
        raise UserError(f"{path}: suggestions are for segmentation, and {run.config.data.name} is classified.")
    device = runs.choose_device("auto")
    model = runs.load_model(path / "model.safetensors", device)
    candidates, labelled = _own(run, console) if folder is None else (_found(folder), [])
    judge = Judge(model.network, device, run.config.perturb, min(MOST_PIXELS, MOST_VALUES // len(model.classes)))
    scores, unreadable = _scored(judge, candidates, console)
    if not scores:
        raise UserError(f"{folder or path}: no image without labels to choose from. Give a folder with --data DIR.")
    order, alike = spread(scores, labelled, count)
    chosen = tuple(scores[index] for index in order)
    table = out or path / "suggest.csv"
    sheet = table.with_suffix(".png")
    write_atomically(table, as_csv(chosen).encode())
    by_name = {candidate.name: candidate for candidate in candidates}
    cells = [_cell(judge, by_name[score.name], rank, score) for rank, score in enumerate(chosen, start=1)]
    write_atomically(sheet, _sheet(f"Label these {len(chosen)} next" if len(chosen) > 1 else "Label this next", cells))
    return Suggestions(chosen, alike, tuple(unreadable), table, sheet)


@dataclass(frozen=True)
class Judge:
    """A model and how its self-contradiction is measured."""

    network: nn.Module
    device: torch.device
    perturb: Perturb
    most: int
    """Pixels of an image; larger ones are made smaller."""

    @torch.no_grad()
    def contradiction(self, pixels: Bytes) -> tuple[float, Tensor]:
        """Mean KL between clean and perturbed predictions of an H×W×3 image; and where, H×W, in the clean image."""
        x = torch.from_numpy(fit(pixels, self.most)).to(self.device).permute(2, 0, 1)[None].float() / 255
        target = probabilities_of(self.network, x)
        draws = draw_perturbation(SEED, 0, DRAWS)
        means, total, weight = [], torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        for number in range(DRAWS):  # one after the other: a batch of large images would not fit everywhere
            perturbation = phtps(_one(draws, number, self.device), x, self.perturb)
            assert perturbation.valid is not None
            logits = logits_of(self.network, perturbation.image(x))
            log_prediction = upsample(logits, x).log_softmax(dim=1)
            kl = torch.where(perturbation.valid, kl_map(perturbation.prediction(target), log_prediction), 0)
            means.append(float(masked_means(kl, perturbation.valid)))
            total += brought_back(kl, perturbation)
            weight += brought_back(perturbation.valid.float(), perturbation)
        return float(np.mean(means)), (total / weight.clamp(min=1e-3))[0].cpu()


def _one(draws: PerturbationDraw, number: int, device: torch.device) -> PerturbationDraw:
    return each_column(draws, lambda values: values[number : number + 1].to(device))


def brought_back(values: Tensor, perturbation: Perturbation) -> Tensor:
    """1×H×W values of a perturbed image, where they belong in the clean one."""
    return perturbation.undo(values[:, None])[0][:, 0]


def spread(scores: Sequence[Score], labelled: Sequence[bytes], count: int) -> tuple[list[int], int]:
    """Indices of up to `count` scores, best first, and how many were left out as near-duplicates.

    Greedily takes the one with the highest product of its divergence and its distance from all that are taken or
    labelled (by fingerprint); near-duplicates of those are never taken.
    """
    fingerprints = [*(score.fingerprint for score in scores), *labelled]
    kl = np.array([score.kl for score in scores])
    similarity = np.zeros(len(scores))
    if labelled:
        similarity = nearest(labelled, fingerprints[: len(scores)])[1].astype(np.float64)
    taken: list[int] = []
    free = np.ones(len(scores), dtype=bool)
    while len(taken) < count:
        free &= similarity < ALIKE
        if not free.any():
            break
        best = int(np.argmax(np.where(free, (kl + 1e-9) * (1 - np.clip(similarity, 0, 1)), -1)))
        taken.append(best)
        # All fingerprints go in every time, since similarity is judged against what a whole set has in common.
        others = [index for index in range(len(fingerprints)) if index != best]
        to_best = nearest([fingerprints[best]], [fingerprints[index] for index in others])[1]
        similarity_to_best = np.ones(len(fingerprints))
        similarity_to_best[others] = to_best
        similarity = np.maximum(similarity, similarity_to_best[: len(scores)])
    return taken, int((similarity >= ALIKE).sum()) - len(taken)


def as_csv(chosen: Sequence[Score]) -> str:
    """A line for each image: rank, name, mean KL."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "image", "kl"])
    writer.writerows([rank, score.name, f"{score.kl:.4f}"] for rank, score in enumerate(chosen, start=1))
    return text.getvalue()


def _own(run: runs.Run, console: Console) -> tuple[list[Candidate], list[bytes]]:
    """The run's training images without labels, and fingerprints of those with."""
    samples = data.load(run.config.data, console).read("train")
    labelled = set(run.split.labelled)
    numbered = list(enumerate(samples.names))
    candidates = [Candidate(name, partial(samples.image, index)) for index, name in numbered if name not in labelled]
    return candidates, [_fingerprint(name, samples.image(index)) for index, name in numbered if name in labelled]


def _found(folder: Path) -> list[Candidate]:
    """Images of a folder that have no mask there."""
    items = find(folder).train
    return [Candidate(item.name, partial(read_image, item.image)) for item in items if item.mask is None]


def _scored(judge: Judge, candidates: Sequence[Candidate], console: Console) -> tuple[list[Score], list[str]]:
    scores, unreadable = [], []
    columns = TextColumn("Looking for contradictions"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for candidate in progress.track(candidates):
            try:
                pixels = np.asarray(candidate.read())
                scores.append(
                    Score(candidate.name, judge.contradiction(pixels)[0], _fingerprint(candidate.name, pixels))
                )
            except UserError as error:
                unreadable.append(f"{candidate.name}: {error}")
    return scores, unreadable


def _fingerprint(name: str, pixels: Bytes) -> bytes:
    return survey(Item(name, Path(name)), pixels, None).fingerprint


def _cell(judge: Judge, candidate: Candidate, rank: int, score: Score) -> Image.Image:
    """A picture, where the model contradicts itself, its name and its divergence."""
    image = Image.fromarray(np.asarray(candidate.read()))
    where = judge.contradiction(np.asarray(image))[1]
    coloured = Image.fromarray(heat.colours()[heat.levels(where).numpy()])
    factor = min(side / there for side, there in zip(CELL, image.size, strict=True))
    width, height = (max(1, round(side * factor)) for side in image.size)
    pictures = [one.resize((width, height), Image.Resampling.LANCZOS) for one in (image, coloured)]
    words = [
        line(shortened(f"{rank}.  {candidate.name}", 14, CELL[0]), 14),
        line(f"KL {score.kl:.3f}", 13, FAINT),
    ]
    return column([column(pictures, 3), column(words, 2)], 7)


def _sheet(title: str, cells: Sequence[Image.Image]) -> bytes:
    """A PNG."""
    meaning = f"Bright where the model contradicts itself: KL over {DRAWS} perturbations, from 0 to {heat.TOP:g} nats"
    heading = column([line(title, 34, bold=True), line(meaning, 17, FAINT)], 8)
    rows = [row(cells[start : start + COLUMNS], GAP, pitch=CELL[0]) for start in range(0, len(cells), COLUMNS)]
    page = column([heading, *rows], 2 * GAP)
    sheet = Image.new("RGB", (page.width + 2 * MARGIN, page.height + 2 * MARGIN), PAPER)
    sheet.paste(page, (MARGIN, MARGIN))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()
