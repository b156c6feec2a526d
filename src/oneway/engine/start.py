"""The initial training state: networks, teachers, optimiser; and the plan of the draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from oneway.common.streams import stream
from oneway.config import Config, Precision
from oneway.draws import Plan
from oneway.engine.optim import optimiser_for
from oneway.engine.state import TrainingState
from oneway.engine.step import in_bfloat16
from oneway.methods import METHODS, VARIANTS
from oneway.models.ema import init_ema
from oneway.models.features import feature_channels
from oneway.models.norm import NormPolicy
from oneway.models.onednn_workaround import avoid_onednn_overrun
from oneway.models.projector import projector_for
from oneway.models.roles import Models
from oneway.models.seed import seed_cpu
from oneway.ops import kernels_run

BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")
"""Without these, oneDNN converts bfloat16 to float32 and back, which is slower than float32 alone."""


def training_state(
    students: Sequence[nn.Module],
    pretrained: Sequence[nn.Parameter],
    config: Config,
    device: torch.device,
    teacher: nn.Module | None = None,
    class_weights: Tensor | None = None,
    classes: int = 0,
) -> TrainingState:
    """The state of a new run on a device: students, teachers, optimiser; a given teacher stays frozen.

    A method with a module of its own needs the number of classes.
    """
    learning = tuple(_on_device(student, config, device) for student in students)
    teachers = learning
    if teacher is not None:
        teachers = (_on_device(teacher, config, device).eval().requires_grad_(False),)
    elif METHODS[config.method].teacher == "mean":
        teachers = tuple(init_ema(student) for student in learning)
    norms = NormPolicy(config.train.batch_norm, config.train.teacher_norm)
    heads = tuple(head.to(device) for head in _heads(config, students[0], classes))
    models = Models(learning, teachers, norms, frozen=teacher is not None, heads=heads)
    weights = None if class_weights is None else class_weights.to(device)
    return TrainingState(models, optimiser_for((*learning, *heads), config.optimiser, pretrained), weights)


def _heads(config: Config, student: nn.Module, classes: int) -> Iterator[nn.Module]:
    """What the method has beside the student; random weights are a function of the run's seed."""
    method = METHODS[config.method]
    if method.needs_pairs:
        yield projector_for(student, config.seed)
    if method.head is not None:
        with seed_cpu(int(stream(config.seed, "head").integers(2**32))):
            yield method.head(student, classes)


def _on_device(student: nn.Module, config: Config, device: torch.device) -> nn.Module:
    student = student.to(device)
    if not student.training:  # as many factories return it; single layers in evaluation mode are left alone
        student.train()
    if device.type == "cpu":
        student = avoid_onednn_overrun(student)
    by_kernels = accelerated(config, device)
    if by_kernels or (config.train.engine == "auto" and device.type == "cpu" and in_bfloat16(config, device)):
        student = student.to(memory_format=torch.channels_last)  # the layout of the fast convolutions
    if not by_kernels or config.model.factory is not None:
        return student  # an unknown network may call the children of a Sequential one by one, and miss an activation
    from oneway.models.fuse import fuse

    return fuse(student)


def accelerated(config: Config, device: torch.device) -> bool:
    """Whether a step uses Triton kernels, and on a GPU one captured graph; else it is plain PyTorch."""
    return config.train.engine == "auto" and kernels_run(device)


def fast_precision(device: torch.device) -> Precision:
    """The fastest precision on a device: on a CPU, bfloat16 if it has instructions for it, else float32."""
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    fast = device.type == "cpu" and any(able.get(name) for name in BFLOAT16_INSTRUCTIONS)
    return "bfloat16" if fast else "auto"


def batch_sizes(config: Config) -> tuple[int, int]:
    """B_l and B_u of a step; a supervised one has no unlabelled images."""
    return config.train.batch_labelled, 0 if METHODS[config.method].supervised else config.train.batch_unlabelled


def plan_of(
    config: Config,
    labelled: Sequence[int],
    unlabelled: Sequence[int],
    channels: int = 3,
    network: nn.Module | None = None,
) -> Plan:
    """The plan of a run's draws: its images by number, and the random numbers that its method needs.

    Args:
        config: Every setting.
        labelled: Numbers of the labelled images.
        unlabelled: Numbers of the unlabelled images.
        channels: Channels of an input: three, or two for points in the plane.
        network: The student; needed for methods that drop channels of its features.
    """
    method, variant = METHODS[config.method], VARIANTS[config.variant]
    batch_labelled, batch_unlabelled = batch_sizes(config)
    return Plan(
        seed=config.seed,
        labelled=tuple(labelled),
        unlabelled=unlabelled if isinstance(unlabelled, range) else tuple(unlabelled),
        batch_labelled=batch_labelled,
        batch_unlabelled=batch_unlabelled,
        scale=config.jitter.scale,
        flip=config.jitter.flip,
        crop=config.jitter.crop is not None,
        noise_shape=(channels, *(config.jitter.crop or ())) if method.noise else (0,),
        views=max(method.views, variant.views),
        augmented=(batch_labelled if method.augment_all else batch_labelled // 2) if method.augment else 0,
        mixes_classes=method.mixes_classes,
        needs_pairs=method.needs_pairs,
        injects=method.injects,
        droppable_channels=sum(feature_channels(network)) if method.drops_channels and network is not None else 0,
    )
