"""Undoes a step whose loss or gradient is not finite, on the device itself, so that the CPU never waits to find out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Watch:
    """What a step could spoil; looked up once, since walking through a network takes as long as a small one's step."""

    parameters: list[nn.Parameter]
    variances: list[Tensor]
    """Batch norm's running ones."""

    buffers: dict[torch.dtype, list[Tensor]]

    @classmethod
    def over(cls, model: nn.Module) -> Watch:
        """All of a model."""
        variances = [module.running_var for module in model.modules() if hasattr(module, "running_var")]
        buffers: dict[torch.dtype, list[Tensor]] = {}
        for buffer in model.buffers():
            buffers.setdefault(buffer.dtype, []).append(buffer)
        return cls(list(model.parameters()), [found for found in variances if isinstance(found, Tensor)], buffers)

    def all_finite(self, losses: Iterable[Tensor | None]) -> Tensor:
        """Whether the losses, every gradient and batch norm's variances are finite: a bool on the device.

        Where activations are so large that their variance is infinite, what batch norm makes of them looks harmless.
        """
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        values = [loss.float() for loss in losses if loss is not None]
        return torch.stack([*values, *torch._foreach_norm([*gradients, *self.variances])]).isfinite().all()

    def snapshot(self) -> dict[torch.dtype, Tensor]:
        """The buffers as they are: one tensor of each kind, since a model has a hundred, and each costs a launch."""
        return {kind: _joined(buffers) for kind, buffers in self.buffers.items()}

    @torch.no_grad()
    def restore_unless(self, finite: Tensor, before: dict[torch.dtype, Tensor]) -> None:
        """Puts back what was there before, unless the bool on the device says that all is well."""
        for kind, buffers in self.buffers.items():
            kept = torch.where(finite, _joined(buffers), before[kind])
            parts = kept.split([buffer.numel() for buffer in buffers])
            torch._foreach_copy_(
                buffers, [part.view(buffer.shape) for part, buffer in zip(parts, buffers, strict=True)]
            )


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
