"""Which statistics batch norm uses, and which inputs may change the running ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def population_statistics(model: nn.Module) -> Iterator[None]:
    """The model as a teacher: evaluation mode, so population statistics, and nothing is updated."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def untracked_statistics(model: nn.Module) -> Iterator[None]:
    """The model as a perturbed student: batch norm uses the mini-batch and leaves the running statistics alone."""
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True
