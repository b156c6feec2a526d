"""What keeps a step that is not finite from doing harm, without asking the device how the step went."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def all_finite(losses: Iterable[Tensor | None], model: nn.Module) -> Tensor:
    """Whether the losses, every gradient and batch norm's variances are finite: a bool on the device.

    Where activations are so large that their variance is infinite, what batch norm makes of them looks harmless.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    variances = [
        variance for module in model.modules() if (variance := getattr(module, "running_var", None)) is not None
    ]
    values = [loss.float() for loss in losses if loss is not None]
    return torch.stack([*values, *torch._foreach_norm([*gradients, *variances])]).isfinite().all()


class Snapshot:
    """The buffers of a model, batch norm's statistics among them, as they were."""

    def __init__(self, model: nn.Module) -> None:
        self.kinds: dict[torch.dtype, list[Tensor]] = {}
        for buffer in model.buffers():
            self.kinds.setdefault(buffer.dtype, []).append(buffer)
        # One tensor for all buffers of a kind: a model has a hundred small ones, and each would cost a launch.
        self.before = {kind: _joined(buffers) for kind, buffers in self.kinds.items()}

    @torch.no_grad()
    def restore_unless(self, finite: Tensor) -> None:
        """Puts back what was there before, unless the bool on the device says that all is well."""
        for kind, buffers in self.kinds.items():
            kept = torch.where(finite, _joined(buffers), self.before[kind])
            parts = kept.split([buffer.numel() for buffer in buffers])
            torch._foreach_copy_(
                buffers, [part.view(buffer.shape) for part, buffer in zip(parts, buffers, strict=True)]
            )


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
