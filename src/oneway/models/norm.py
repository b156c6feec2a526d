"""Which statistics batch norm uses, and which inputs may change the running ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from oneway.config import BatchNorm


def student_statistics(model: nn.Module, policy: BatchNorm, clean: bool) -> AbstractContextManager[None]:
    """The model as a student of a clean or a perturbed input, under the policy `train.batch_norm`."""
    if policy == "frozen":
        return frozen_statistics(model)
    return nullcontext() if clean or policy == "both" else untracked_statistics(model)


@contextmanager
def population_statistics(model: nn.Module) -> Iterator[None]:
    """The model as a teacher: evaluation mode, so population statistics, and nothing is updated."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def untracked_statistics(model: nn.Module) -> Iterator[None]:
    """The model as a perturbed student: batch norm uses the mini-batch and leaves the running statistics alone."""
    layers = [layer for layer in _batch_norms(model) if layer.track_running_stats]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Batch norm uses the running statistics and leaves them alone; scale and shift still learn."""
    layers = [layer for layer in _batch_norms(model) if layer.training]
    for layer in layers:
        layer.training = False
    try:
        yield
    finally:
        for layer in layers:
            layer.training = True


def _batch_norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]
