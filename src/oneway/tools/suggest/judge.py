"""What a model makes of an image: its doubt, its features, and where it contradicts itself.

Shapes: N images, or N draws of one image, of H×W pixels; C classes; K features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from oneway import runs
from oneway.common.terms import SuggestBy
from oneway.config import Perturb
from oneway.data.dataset import Bytes
from oneway.data.image_style import COLOURS, ImageStyle
from oneway.draws import draw_perturbation, on_device
from oneway.models.features import encoded_features
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

MOST_PIXELS_CPU, MOST_PIXELS_GPU = 5 * 2**18, 2**21
"""Pixels of an image that is scored; larger ones are made smaller, with a note, so that two cores take at most a second
for each."""

NEEDS_FEATURES = ("features", "both")
SHEET_PIXELS = 2**16
"""Pixels of an image whose contradictions are looked at: as many as the contact sheet shows."""

MOST_VALUES = 2**26
"""Probabilities of one prediction, 256 MiB: with very many classes, images are made smaller."""

Floats = npt.NDArray[np.float64]


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


def bring_back(values: Tensor, perturbation: Perturbation) -> Tensor:
    """N×H×W values of perturbed images, where they belong in the clean ones."""
    return perturbation.inverse().prediction(values[:, None])[:, 0]
