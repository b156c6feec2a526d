"""Scores of unlabelled images for choosing which to label: the model's doubt, its features, its self-contradiction.

Shapes: N images, or N draws of one image, of H×W pixels; C classes; K features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
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
from oneway.common.terms import SuggestBy
from oneway.common.words import say
from oneway.config import Perturb
from oneway.data.check.survey import fingerprint
from oneway.data.dataset import Bytes, factor_of
from oneway.data.decode.images import read_image, reduced
from oneway.data.folder.files import find
from oneway.data.image_style import COLOURS, ImageStyle
from oneway.draws import draw_perturbation, on_device
from oneway.models.features import encoded_features
from oneway.ops.losses import kl_map, pixels_of, upsample
from oneway.perturb import Perturbation, phtps
from oneway.tools.evaluate import as_input
from oneway.tools.explore import require_segmentation
from oneway.tools.explore.compute import logits_of, masked_means, probabilities_of
from oneway.tools.explore.images import shrink
from oneway.tools.run_data import refuse_other_style

DRAWS = 2
SEED = 0
"""Every image meets the same perturbations, so that chance favours none."""

STRENGTH = 0.5
"""Share of the run's strengths. At all of it, some draws break a model whatever an image shows, and only they count."""

MOST_PIXELS_CPU, MOST_PIXELS_GPU = 5 * 2**18, 2**21
"""Pixels of an image that is scored; larger ones are made smaller, with a note, so that two cores take at most a second
for each."""

NEEDS_FEATURES = ("features", "both")
SHEET_PIXELS = 2**16
"""Pixels of an image whose contradictions are looked at: as many as the contact sheet shows."""

MOST_VALUES = 2**26
"""Probabilities of one prediction, 256 MiB: with very many classes, images are made smaller."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """An image without labels."""

    name: str
    read: Callable[[], Bytes]
    path: Path | None = None
    """Its file, absolute; None where it was made by code."""

    has_mask: bool = False
    """Whether labels exist, used or not."""


def candidates_of_run(
    run: runs.Run, style: ImageStyle, console: Console, *, refresh: bool = False, cache: Path | None
) -> tuple[list[Candidate], list[Candidate]]:
    """A run's training images that it has no labels for, and those that it has; as its model has learnt to see them."""
    known = data.load(runs.data_of(run, console, refresh=refresh, cache=cache), console)
    refuse_other_style(run.path, style, known)
    samples = known.read("train")
    paths = {name: path.absolute() for name, path in known.paths.items()}
    images = [
        Candidate(name, partial(samples.image, index), paths.get(name), index < samples.labelled)
        for index, name in enumerate(samples.names)
    ]
    labelled = set(run.split.labelled)
    return [one for one in images if one.name not in labelled], [one for one in images if one.name in labelled]


def candidates_in_folder(folder: Path, style: ImageStyle, reduction: int) -> list[Candidate]:
    """Images of a folder that have no labels there, as a model sees them, and at most so many times smaller."""

    def read(path: Path) -> Bytes:
        image = read_image(path, style=style)
        return reduced(image, factor_of((image.shape[0], image.shape[1]), reduction))

    items = find(folder).train
    return [
        Candidate(item.name, partial(read, item.image), item.image.absolute()) for item in items if not item.labelled
    ]


@dataclass(frozen=True)
class Score:
    """What a model says about one image."""

    name: str
    value: float
    """What the model is unsure of: 1 is the average of all that were scored."""

    doubt: float
    """Entropy of the prediction: mean over pixels."""

    fingerprint: bytes
    features: Floats = field(default_factory=lambda: np.zeros(0), compare=False)
    """K: what the encoder makes of it, mean over the cells of each feature map."""

    distance: float | None = None
    """Distance of an image that is taken to the nearest that is labelled or was taken before; None without any."""

    worth: float | None = None
    """What it was taken by: no later one has more; None where there was nothing to be far from."""


@dataclass(frozen=True)
class Judge:
    """A model, and how its self-contradiction is measured."""

    network: nn.Module
    device: torch.device
    perturb: Perturb
    most: int
    """Pixels of an image that is scored; larger ones are made smaller."""

    style: ImageStyle = COLOURS
    """Bands of image files that the model was trained to see as colours."""

    at_once: int = 0
    """Pixels of a batch of images of one size; a batch has at least one image."""

    reduction: int = 1
    """How many times smaller than they are, each way, the model has learnt to see images."""

    @torch.inference_mode()
    def look(self, pixels: Sequence[Bytes], by: SuggestBy = "doubt") -> tuple[Floats, Floats]:
        """What the model makes of N images of one size, H×W×3, as far as choosing by `by` needs it.

        N×C, what each class adds to the entropy of the prediction; and N×K features. Both are means over pixels.
        """
        x = torch.cat([self._input(image, self.most) for image in pixels])
        with ExitStack() as watching:
            found = watching.enter_context(encoded_features(self.network)) if by in NEEDS_FEATURES else []
            target = probabilities_of(self.network, x)
        doubts = torch.special.entr(target).mean(dim=(2, 3))
        means = [each.mean(dim=(2, 3)) for maps in found for each in maps]
        features = torch.cat(means, dim=1) if means else x.new_zeros(len(x), 0)
        return doubts.double().cpu().numpy(), features.double().cpu().numpy()

    @torch.inference_mode()
    def contradiction(self, pixels: Bytes) -> tuple[float, Tensor, Tensor]:
        """KL between clean and perturbed predictions for an image; and where it is in the clean one, made smaller.

        Then, for the same pixels, the entropy of the clean prediction: 1 where all classes are as probable.
        """
        x = self._input(pixels, min(self.most // DRAWS, SHEET_PIXELS))
        target, copies = probabilities_of(self.network, x), x.expand(DRAWS, -1, -1, -1)
        draws = on_device(draw_perturbation(SEED, 0, DRAWS), self.device)
        perturbation = phtps(draws, copies, self.perturb)
        assert perturbation.valid is not None
        logits = logits_of(self.network, perturbation.image(copies))
        log_prediction = upsample(logits, pixels_of(x)).log_softmax(dim=1)
        moved = perturbation.prediction(target.expand(DRAWS, -1, -1, -1))
        kl = torch.where(perturbation.valid, kl_map(moved, log_prediction), 0)
        total, weight = (bring_back(each, perturbation).sum(dim=0) for each in (kl, perturbation.valid.float()))
        doubt = torch.special.entr(target).sum(dim=1)[0] / math.log(max(2, target.shape[1]))
        mean = float(masked_means(kl, perturbation.valid).mean())
        return mean, (total / weight.clamp(min=1e-3)).cpu(), doubt.cpu()

    def _input(self, pixels: Bytes, most: int) -> Tensor:
        return as_input(torch.from_numpy(shrink(pixels, most))[None].to(self.device))


def balance_classes(doubts: Floats) -> Floats:
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
    fitting = MOST_VALUES // len(model.classes)
    on_cpu = place.type == "cpu"
    most, at_once = min(MOST_PIXELS_CPU if on_cpu else MOST_PIXELS_GPU, fitting), 0 if on_cpu else fitting
    return Judge(network, place, weaken(run.config.perturb), most, model.image_style, at_once, model.reduction)


def weaken(perturb: Perturb) -> Perturb:
    """The strengths of `perturb`, times STRENGTH."""
    strengths = {"photometric": STRENGTH * perturb.photometric, "geometric": STRENGTH * perturb.geometric}
    return perturb.model_copy(update=strengths)


def score_images(
    judge: Judge, candidates: Sequence[Candidate], console: Console, by: SuggestBy = "doubt"
) -> tuple[list[Score], list[str]]:
    """A score for each image that can be read, and why the others cannot; says how many were made smaller for it."""
    larger, unreadable = 0, list[str]()
    found: list[tuple[str, bytes, Floats, Floats]] = []
    with progress_bar(console, "Scoring images", len(candidates)) as advance:
        for names, images in _batches(judge, candidates, unreadable, advance):
            larger += len(images) if images[0][..., 0].size > judge.most else 0
            try:
                found += zip(names, map(fingerprint, images), *judge.look(images, by), strict=True)
            except UserError as error:
                unreadable += [f"{name}: {error}" for name in names]
            for _ in names:
                advance()
    if larger:
        say(
            console,
            f"Note: {larger} of {len(candidates)} images have more than {judge.most / 1e6:.1f} megapixels and are "
            "scored at a smaller size, where their order can be somewhat another.",
        )
    if not found:
        return [], unreadable
    values = balance_classes(np.stack([doubts for _, _, doubts, _ in found]))
    scores = [
        Score(name, float(value), float(doubts.sum()), known, features)
        for value, (name, known, doubts, features) in zip(values, found, strict=True)
    ]
    return scores, unreadable


def _batches(
    judge: Judge, candidates: Sequence[Candidate], unreadable: list[str], advance: Callable[[], None]
) -> Iterator[tuple[list[str], list[Bytes]]]:
    """Names and pixels of images that follow on each other and have one size; why one cannot be read is noted."""
    names: list[str] = []
    images: list[Bytes] = []
    for candidate in candidates:
        try:
            pixels = np.asarray(candidate.read())
        except UserError as error:
            unreadable.append(f"{candidate.name}: {error}")
            advance()
            continue
        full = (len(images) + 1) * pixels[..., 0].size > judge.at_once
        if images and (full or images[0].shape != pixels.shape):
            yield names, images
            names, images = [], []
        names.append(candidate.name)
        images.append(pixels)
    if images:
        yield names, images


def bring_back(values: Tensor, perturbation: Perturbation) -> Tensor:
    """N×H×W values of perturbed images, where they belong in the clean ones."""
    return perturbation.inverse().prediction(values[:, None])[:, 0]
