"""Policies of batch norm: which statistics it uses, and which inputs update the running statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from oneway.config import BatchNorm, TeacherNorm


class NormPolicy(NamedTuple):
    """Settings of batch norm in training."""

    student: BatchNorm = "clean"  # `train.batch_norm`
    teacher: TeacherNorm = "population"  # `train.teacher_norm`


def student_statistics(student: nn.Module, policy: NormPolicy, clean: bool) -> AbstractContextManager[None]:
    """Within the block, the model's batch norms follow the policy for a student."""
    if policy.student == "frozen":
        return frozen_statistics(student)
    return nullcontext() if clean or policy.student == "both" else untracked_statistics(student)


def teacher_statistics(
    teacher: nn.Module, student: nn.Module, policy: NormPolicy, clean: bool
) -> AbstractContextManager[None]:
    """Within the block, the model's batch norms follow the policy for a teacher.

    A simple teacher is the student: where it uses the statistics of the batch, it updates the running ones as a student
    does. A mean teacher always uses its running statistics.
    """
    if teacher is not student or policy.teacher == "population" or policy.student == "frozen":
        return population_statistics(teacher)
    return minibatch_statistics(teacher, tracked=clean or policy.student == "both")


@contextmanager
def population_statistics(model: nn.Module) -> Iterator[None]:
    """Within the block, the model is in evaluation mode: running statistics are used and not updated."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def untracked_statistics(model: nn.Module) -> AbstractContextManager[None]:
    """Within the block, batch norm uses the mini-batch and does not update the running statistics."""
    return _switched_off(model, "track_running_stats")


@contextmanager
def minibatch_statistics(model: nn.Module, tracked: bool) -> Iterator[None]:
    """Within the block, evaluation mode with mini-batch statistics; running statistics are updated if `tracked`."""
    with population_statistics(model):
        for layer in _batch_norms(model):
            layer.training = True
        with nullcontext() if tracked else untracked_statistics(model):
            yield


def frozen_statistics(model: nn.Module) -> AbstractContextManager[None]:
    """Within the block, batch norm uses the running statistics without updates; scale and shift still learn."""
    return _switched_off(model, "training")


@contextmanager
def _switched_off(model: nn.Module, switch: str) -> Iterator[None]:
    """Within the block, an attribute of batch-norm layers is False where it was True."""
    layers = [layer for layer in _batch_norms(model) if getattr(layer, switch)]
    for layer in layers:
        setattr(layer, switch, False)
    try:
        yield
    finally:
        for layer in layers:
            setattr(layer, switch, True)


def _batch_norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]
