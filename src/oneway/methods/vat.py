"""Virtual adversarial training with entropy minimisation (Miyato et al., 2019).

Shapes: N inputs, C classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from oneway import ops
from oneway.methods import supervised
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.models.roles import Models
from oneway.perturb import UNCHANGED


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s, then α KL(h(x) ‖ h(x + r)) and the entropy of h(x + r)."""
    yield from supervised.losses(models, batch, settings)
    yield adversarial_losses(models, batch, settings)


def adversarial_losses(models: Models, batch: Batch, settings: Settings) -> tuple[Loss, ...]:
    """Consistency and entropy of the prediction under the adversarial perturbation."""
    x_u = batch.unlabelled()
    assert batch.noise is not None
    found = adversarial(models.probe, x_u, batch.noise.to(x_u.dtype), settings.adversarial_norm)
    prediction = models.student(x_u + found.r, clean=False)
    divergence = ops.moved_kl(found.logits, prediction, UNCHANGED, ops.pixels_of(x_u))
    consistency = Loss("consistency", divergence, settings.alpha)
    if settings.entropy == 0:
        return (consistency,)
    return consistency, Loss("entropy", ops.entropy(prediction), settings.entropy)


class Adversarial(NamedTuple):
    """The adversarial perturbation of N inputs."""

    r: Tensor
    """The perturbation, of the inputs' shape."""

    logits: Tensor
    """N×C logits of the unperturbed inputs."""


def adversarial(logits_of: Callable[[Tensor], Tensor], x: Tensor, d: Tensor, epsilon: float) -> Adversarial:
    """Find r with ‖r‖ = ε for each input, by one power iteration from a random direction d.

    The iteration multiplies d by the curvature of the divergence at r = 0, which is Jᵀ F J: J the derivative of the
    logits, F = diag(p) − p pᵀ. Miyato et al. approximate the product by a gradient at ξ d, with ξ = 1e-6; in single
    precision such a step is lost when it is added to a pixel. We take the limit ξ → 0 instead, exactly: J by
    forward-mode differentiation, Jᵀ by the usual backward pass.
    """
    # On a CPU, autocast casts an input but not its tangent, and convolutions refuse mixed types: no autocast there.
    exactly = torch.autocast("cpu", enabled=False) if x.device.type == "cpu" else nullcontext()
    with exactly, torch.enable_grad(), forward_ad.dual_level(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's forward mode uses a deprecated part of PyTorch
        x = x.detach().requires_grad_()
        logits, tangent = forward_ad.unpack_dual(logits_of(forward_ad.make_dual(x, _unit(d))))
        p, j_d = logits.detach().softmax(dim=1), tangent.detach()
        f_j_d = p * (j_d - (p * j_d).sum(dim=1, keepdim=True))
        (g,) = torch.autograd.grad(logits, x, f_j_d)
    return Adversarial(epsilon * _unit(g), logits.detach())


def _unit(r: Tensor) -> Tensor:
    length = r.flatten(1).norm(dim=1).clamp(min=torch.finfo(r.dtype).tiny)
    return r / length.view(-1, *[1] * (r.ndim - 1))
