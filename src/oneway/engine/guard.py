"""Undo a step whose loss or gradient is not finite, on the device, so that the CPU never waits for the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class StepGuard:
    """The tensors that a step with non-finite values could corrupt.

    They are collected once: walking through a network's modules takes as long as a step of a small network.
    """

    parameters: list[nn.Parameter]
    variances: list[Tensor]
    """The running variances of batch norm."""

    buffers: dict[torch.dtype, list[Tensor]]

    @classmethod
    def over(cls, model: nn.Module) -> StepGuard:
        """A guard over all parameters and buffers of a model."""
        variances = [module.running_var for module in model.modules() if hasattr(module, "running_var")]
        buffers: dict[torch.dtype, list[Tensor]] = {}
        for buffer in model.buffers():
            buffers.setdefault(buffer.dtype, []).append(buffer)
        return cls(list(model.parameters()), [found for found in variances if isinstance(found, Tensor)], buffers)

    def all_finite(self, losses: Iterable[Tensor]) -> Tensor:
        """Whether the losses, every gradient and batch norm's variances are finite: a bool on the device.

        Where activations are so large that their variance is infinite, what batch norm makes of them looks harmless.
        """
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        values = (loss.float() for loss in losses)
        return torch.stack([*values, *torch._foreach_norm([*gradients, *self.variances])]).isfinite().all()

    def snapshot(self) -> dict[torch.dtype, Tensor]:
        """A copy of the buffers, joined into one tensor per dtype: a model has a hundred, and each copy is a launch."""
        return {kind: _joined(buffers) for kind, buffers in self.buffers.items()}

    @torch.no_grad()
    def restore_unless(self, finite: Tensor, before: dict[torch.dtype, Tensor]) -> None:
        """Restore the buffers from a snapshot, unless `finite`, a bool on the device, is true."""
        for kind, buffers in self.buffers.items():
            kept = torch.where(finite, _joined(buffers), before[kind])
            parts = kept.split([buffer.numel() for buffer in buffers])
            torch._foreach_copy_(
                buffers, [part.view(buffer.shape) for part, buffer in zip(parts, buffers, strict=True)]
            )


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
