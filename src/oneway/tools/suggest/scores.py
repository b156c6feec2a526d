"""How much a model doubts what an image shows, class by class; and where it contradicts itself about it.

Shapes: N images, or N draws of one image, of H×W pixels; C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor, nn

from oneway import data, runs
from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.words import say
from oneway.config import Perturb
from oneway.data.check.survey import fingerprint
from oneway.data.dataset import Bytes
from oneway.data.decode.images import Bands, read_image
from oneway.data.folder.files import find
from oneway.draws import PerturbationDraw, draw_perturbation, each_column
from oneway.ops.losses import kl_map, pixels_of, upsample
from oneway.perturb import Perturbation, phtps
from oneway.tools.evaluate import as_input
from oneway.tools.explore import require_segmentation
from oneway.tools.explore.compute import logits_of, masked_means, probabilities_of
from oneway.tools.explore.images import shrink

DRAWS = 2
SEED = 0
"""Every image meets the same perturbations, so that chance favours none."""

STRENGTH = 0.5
"""Share of the run's strengths. At all of it, some draws break a model whatever an image shows, and only they count."""

MOST_PIXELS = {"cpu": 5 * 2**18}
"""Pixels of an image whose doubts are asked for, by device; larger ones are made smaller, which is said, so that two
cores take a second for each at most. Other devices need not hurry: `MOST_ELSEWHERE`."""

MOST_ELSEWHERE = 2**21
SHEET_PIXELS = 2**16
"""Pixels of an image whose contradictions are looked at: as many as the contact sheet shows."""

MOST_VALUES = 2**26
"""Probabilities of one prediction, 256 MiB: with very many classes, images are made smaller."""

Doubts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """An image without labels."""

    name: str
    read: Callable[[], Bytes]
    path: Path | None = None
    """Its file, absolute; None where it was made by code."""


def candidates_of_run(
    run: runs.Run, console: Console, refresh: bool = False, cache: Path | None = None
) -> tuple[list[Candidate], list[bytes]]:
    """A run's training images without labels, and fingerprints of those with."""
    known = data.load(runs.data_of(run, console, refresh=refresh, cache=cache), console)
    samples = known.read("train")
    paths = {name: path.absolute() for name, path in known.paths.items()}
    images = [
        Candidate(name, partial(samples.image, index), paths.get(name)) for index, name in enumerate(samples.names)
    ]
    labelled = set(run.split.labelled)
    fingerprints = [fingerprint(np.asarray(image.read())) for image in images if image.name in labelled]
    return [image for image in images if image.name not in labelled], fingerprints


def candidates_in_folder(folder: Path, bands: Bands | None = None) -> list[Candidate]:
    """Images of a folder that have no mask there, in these bands."""
    items = find(folder).train
    return [
        Candidate(item.name, partial(read_image, item.image, bands=bands), item.image.absolute())
        for item in items
        if item.mask is None
    ]


@dataclass(frozen=True)
class Score:
    """What a model says about one image."""

    name: str
    value: float
    """What images are ranked by: 1 is the average of all that were scored."""

    doubt: float
    """Entropy of the prediction: mean over pixels."""

    fingerprint: bytes


@dataclass(frozen=True)
class Judge:
    """A model, and how its self-contradiction is measured."""

    network: nn.Module
    device: torch.device
    perturb: Perturb
    most: int
    """Pixels of an image whose doubts are asked for; larger ones are made smaller."""

    bands: Bands | None = None
    """Of files, those that the model has learnt to see as colours."""

    @torch.inference_mode()
    def doubts(self, pixels: Bytes) -> Doubts:
        """C: what each class adds to the entropy of the prediction for an H×W×3 image, mean over pixels."""
        target = probabilities_of(self.network, self._input(pixels, self.most))
        return torch.special.entr(target).mean(dim=(0, 2, 3)).double().cpu().numpy()

    @torch.inference_mode()
    def contradiction(self, pixels: Bytes) -> tuple[float, Tensor]:
        """KL between clean and perturbed predictions for an image; and where it is in the clean one, made smaller."""
        x = self._input(pixels, min(self.most, SHEET_PIXELS))
        target = probabilities_of(self.network, x)
        draws = draw_perturbation(SEED, 0, DRAWS)
        means, total, weight = [], torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        for number in range(DRAWS):  # one after the other: a batch of large images would not fit everywhere
            perturbation = phtps(_one(draws, number, self.device), x, self.perturb)
            assert perturbation.valid is not None
            logits = logits_of(self.network, perturbation.image(x))
            log_prediction = upsample(logits, pixels_of(x)).log_softmax(dim=1)
            kl = torch.where(perturbation.valid, kl_map(perturbation.prediction(target), log_prediction), 0)
            means.append(float(masked_means(kl, perturbation.valid)))
            total += bring_back(kl, perturbation)
            weight += bring_back(perturbation.valid.float(), perturbation)
        return float(np.mean(means)), (total / weight.clamp(min=1e-3))[0].cpu()

    def _input(self, pixels: Bytes, most: int) -> Tensor:
        return as_input(torch.from_numpy(shrink(pixels, most))[None].to(self.device))


def balance_classes(doubts: Doubts) -> Doubts:
    """N values from N×C doubts: how many times the average of all images each has, as a mean over classes.

    A sum over classes would be about those that fill images. Here every class counts the same, as it does in mIoU: what
    is rare in the labels is rarely thought of, and an image that brings it to mind stands out.
    """
    averages = doubts.mean(axis=0).clip(min=np.finfo(doubts.dtype).tiny)  # of a class never thought of: 0
    return (doubts / averages).mean(axis=1)


def load_judge(run: runs.Run, factory: str | None = None, device: str = "auto") -> Judge:
    """A run's model, with gentler perturbations than it was trained with."""
    require_segmentation(run, "suggestions are for")
    place = runs.choose_device(device)
    model = runs.load_model(run.model_file, place, factory)
    network = model.network.to(memory_format=torch.channels_last)
    most = MOST_PIXELS.get(place.type, MOST_ELSEWHERE)
    return Judge(network, place, weaken(run.config.perturb), min(most, MOST_VALUES // len(model.classes)), model.bands)


def weaken(perturb: Perturb) -> Perturb:
    """The strengths of `perturb`, times STRENGTH."""
    strengths = {"photometric": STRENGTH * perturb.photometric, "geometric": STRENGTH * perturb.geometric}
    return perturb.model_copy(update=strengths)


def score_images(judge: Judge, candidates: Sequence[Candidate], console: Console) -> tuple[list[Score], list[str]]:
    """A score for each image that can be read, and why the others cannot; says how many were made smaller for it."""
    larger = 0
    found: list[tuple[str, Doubts, bytes]] = []
    unreadable = []
    with progress_bar(console, "Scoring images", len(candidates)) as advance:
        for candidate in candidates:
            try:
                pixels = np.asarray(candidate.read())
                larger += pixels.shape[0] * pixels.shape[1] > judge.most
                found.append((candidate.name, judge.doubts(pixels), fingerprint(pixels)))
            except UserError as error:
                unreadable.append(f"{candidate.name}: {error}")
            advance()
    if larger:
        say(
            console,
            f"Note: {larger} of {len(candidates)} images have more than {judge.most / 1e6:.1f} megapixels and are "
            "scored at a smaller size, where their order can be somewhat another.",
        )
    if not found:
        return [], unreadable
    values = balance_classes(np.stack([doubts for _, doubts, _ in found]))
    scores = [
        Score(name, float(value), float(doubts.sum()), known_by)
        for (name, doubts, known_by), value in zip(found, values, strict=True)
    ]
    return scores, unreadable


def bring_back(values: Tensor, perturbation: Perturbation) -> Tensor:
    """1×H×W values of a perturbed image, where they belong in the clean one."""
    return perturbation.inverse().prediction(values[:, None])[:, 0]


def _one(draws: PerturbationDraw, number: int, device: torch.device) -> PerturbationDraw:
    return each_column(draws, lambda values: values[number : number + 1].to(device))
