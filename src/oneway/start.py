"""What a run starts with: a network with its teacher and optimiser, and what it draws from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from oneway import optim
from oneway.config import Config
from oneway.data.dataset import Samples
from oneway.data.splits import Split
from oneway.draws import Plan
from oneway.methods import METHODS, VARIANTS
from oneway.models.teacher import mean_teacher
from oneway.step import TrainingState, runs_fused


def training_state(
    student: nn.Module, pretrained: Sequence[nn.Parameter], config: Config, device: torch.device
) -> TrainingState:
    """A network ready to train on a device, with its teacher and optimiser."""
    student = student.to(device)
    if not student.training:  # as many factories leave them; layers that are frozen in a network that is not, stay so
        student.train()
    if runs_fused(config, device):
        student = _fused(student.to(memory_format=torch.channels_last), config)  # the layout of the fast convolutions
    teacher = mean_teacher(student) if METHODS[config.method].teacher == "mean" else student
    return TrainingState(student, teacher, optim.optimiser_for(student, config.optimiser, pretrained))


def plan_of(config: Config, samples: Samples, split: Split) -> Plan:
    """What a run draws from: its images, and all that its method leaves to chance."""
    method, variant = METHODS[config.method], VARIANTS[config.variant]
    item = {name: index for index, name in enumerate(samples.names)}
    batch_labelled, batch_unlabelled = config.batch
    return Plan(
        seed=config.seed,
        labelled=tuple(item[name] for name in split.labelled),
        unlabelled=tuple(item[name] for name in split.unlabelled),
        batch_labelled=batch_labelled,
        batch_unlabelled=batch_unlabelled,
        scale=config.jitter.scale,
        flip=config.jitter.flip,
        crop=config.jitter.crop is not None,
        noise_shape=_input_shape(config, samples) if any(traits.noise for traits in method.traits) else (0,),
        perturb_both=not method.supervised and not variant.first_is_clean,
        augment=method.augmentation is not None,
    )


def _fused(student: nn.Module, config: Config) -> nn.Module:
    """Norms and upsampling by our kernels, but for networks we do not know."""
    if config.model.factory is not None:
        return student
    from oneway.models.fuse import fuse

    return fuse(student)


def _input_shape(config: Config, samples: Samples) -> tuple[int, ...]:
    """Of one input of the network: a crop, or a point."""
    channels = samples.pixels.shape[1]
    return (channels,) if config.jitter.crop is None else (channels, *config.jitter.crop)
