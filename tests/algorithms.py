"""Methods on batches of the tests' own making, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from oneway.engine.step import Measured, add_gradients
from oneway.methods import METHODS, VARIANTS, VariantName
from oneway.methods.interface import Batch, Settings
from oneway.models.norm import NormPolicy
from oneway.models.roles import Models
from oneway.perturb import Perturbation


def settings(variant: VariantName = "1w-ct", **changes: object) -> Settings:
    """Those of a method, with the paper's numbers."""
    usual = {"alpha": 0.5, "loss": "kl", "confidence": 0.97, "entropy": 1.0, "adversarial_norm": 10.0}
    return Settings(variant=VARIANTS[variant], **{**usual, **changes})


def batch_of(x_l: Tensor, y_l: Tensor, x_u: Tensor | None = None, views: Sequence[Perturbation] = ()) -> Batch:
    """Given images, and perturbations for the unlabelled ones."""
    return Batch(lambda: (x_l, y_l), lambda: x_u, lambda x, view: views[view])


def gradients(
    method: str,
    student: nn.Module,
    teacher: nn.Module,
    batch: Batch,
    norms: NormPolicy | None = None,
    chosen: Settings | None = None,
) -> Measured:
    """Adds the gradient of all losses of a method to the student's."""
    models = Models((student,), (teacher,), norms or NormPolicy())
    losses = METHODS[method].generator()(models, batch, chosen or settings())
    return add_gradients(losses, student.parameters())


class NoWaiting(TorchDispatchMode):
    """Refuses what would make the CPU wait for a device, or give a tensor a shape that only the device knows."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "item", "bincount")

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = function.overloadpacket.__name__
        assert not name.startswith(self.WAITING), name
        if name.startswith("index"):
            indices = arguments[1] if isinstance(arguments[1], (list, tuple)) else ()
            assert all(index is None or index.dtype != torch.bool for index in indices), name
        return function(*arguments, **(keywords or {}))
