"""The paper's perturbations on a GPU, with one pass over the images and none over full-resolution predictions."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from oneway.config import Perturb
from oneway.draws import PerturbationDraw
from oneway.methods import PerturbationName
from oneway.perturb import PERTURBATIONS, Fused, Perturbation
from oneway.perturb.photometric import with_strength
from oneway.perturb.tps import basis_on

FUSED: tuple[PerturbationName, ...] = ("ph", "tps", "phtps")
COLOURS: tuple[PerturbationName, ...] = ("ph", "phtps")
GEOMETRY: tuple[PerturbationName, ...] = ("tps", "phtps")


def fused_perturbation(name: PerturbationName, draw: PerturbationDraw, x: Tensor, config: Perturb) -> Perturbation:
    """`ph`, `tps` or `phtps` for a clean teacher: images perturbed, and the divergence of a prediction moved alike."""
    from oneway.kernels import Warp, fused_masked_kl, fused_perturb, supports

    height, width = x.shape[-2:]
    recoloured = name in COLOURS and config.photometric > 0  # else the identity to the bit
    colours = with_strength(draw.photometric, config.photometric) if recoloured else None
    warp = None
    if name in GEOMETRY:
        displacements = config.geometric * config.deviation * height * draw.displacements
        warp = Warp(basis_on(height, width, x.device, torch.float32), displacements)
    return Perturbation(
        image=lambda x: fused_perturb(x, colours, warp),
        fused=Fused(supports, partial(fused_masked_kl, warp=warp), lambda: PERTURBATIONS[name](draw, x, config)),
    )
