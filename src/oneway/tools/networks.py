"""The networks that a run begins with: random, or filled with weights from elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError, unknown
from oneway.common.importing import collector_paused
from oneway.common.links import refuse_link
from oneway.common.run_files import MODEL
from oneway.common.streams import stream
from oneway.common.terms import Task
from oneway.common.words import listed
from oneway.config import Config, Model
from oneway.data.dataset import Dataset
from oneway.engine.optim import layer_factors
from oneway.engine.refusals import refuse_single_value_batch_norm
from oneway.engine.start import training_state
from oneway.engine.state import TrainingState
from oneway.methods import METHODS
from oneway.models import build
from oneway.models.factory import examine
from oneway.models.features import classifier_of, feature_channels
from oneway.perturb import PERTURBATIONS
from oneway.runs import TrainedModel, load_model
from oneway.runs.model_file import digest
from oneway.runs.reading import is_there
from oneway.tools.run_data import refuse_other_style

if TYPE_CHECKING:
    from oneway.runs.weights import Weights


@dataclass(frozen=True)
class Origin:
    """What the networks of a run start from, apart from random weights."""

    weights: Weights | None
    """The weights of `model.weights`; None where a checkpoint has them."""

    filled: Collection[str]
    """The names of the parameters that weights filled when the run began, where a checkpoint has them."""

    teacher: TrainedModel | None
    """The model of `teacher`, which no checkpoint has."""

    @cached_property
    def teacher_digest(self) -> str | None:
        """Identifies the teacher: the same weights and classes give the same digest."""
        if self.teacher is None:
            return None
        return digest({"classes": self.teacher.classes}, self.teacher.network.state_dict())


class Prepared(NamedTuple):
    """A network that is ready to train."""

    network: nn.Module
    pretrained: list[nn.Parameter]
    """What `model.weights` filled."""

    remarks: list[str]
    """What the user should know about it."""

    @property
    def filled(self) -> tuple[str, ...]:
        """Names of the parameters that `model.weights` filled."""
        known = {id(parameter) for parameter in self.pretrained}
        return tuple(name for name, parameter in self.network.named_parameters() if id(parameter) in known)


def refuse_unsuited(config: Config, classes: int) -> None:
    """Refuse perturbations that there are not, and networks that do not fit: no data are needed.

    One of the user's own may be impossible to make, or lack what the method looks into. Others are known to fit their
    methods before anything is opened.
    """
    method = METHODS[config.method]
    for name in (*method.perturb, *method.augment):
        if name not in PERTURBATIONS:
            raise unknown(f"perturbation of the method {config.method}", name, PERTURBATIONS)
    if config.model.factory is None:
        return
    network = build(config.model, classes, student_seed(config.seed, 0))
    if method.drops_channels:
        feature_channels(network)
    if method.needs_pairs:
        classifier_of(network)
    if config.optimiser.layer_decay != 1 and not layer_factors([network], config.optimiser.layer_decay):
        raise UserError(
            f"optimiser.layer_decay: what model.factory {config.model.factory} makes has no `encoder` with a method "
            "`layers_behind`, which returns by how many layers each parameter lies behind the decoder. Write it, or "
            "use --optimiser.layer-decay 1."
        )


def locate_origin(config: Config, filled: Collection[str]) -> Origin:
    """What the networks start from; refused here if it cannot be had, since it needs no data."""
    return Origin(None if filled else locate_weights(config.model), filled, load_teacher(config))


def initial_state(
    config: Config, classes: int, device: torch.device, origin: Origin, class_weights: Tensor | None
) -> tuple[TrainingState, Prepared]:
    """The networks of a run on their device with their optimiser; and the first student, as it was prepared."""
    task, crop = config.data.task, config.jitter.crop
    students = [
        prepare(config.model, classes, student_seed(config.seed, which), task, crop, origin.weights, origin.filled)
        for which in range(METHODS[config.method].students)
    ]
    refuse_single_value_batch_norm(students[0].network, config)
    networks, pretrained = [each.network for each in students], [each for one in students for each in one.pretrained]
    teacher = None if origin.teacher is None else origin.teacher.network
    state = training_state(networks, pretrained, config, device, teacher, class_weights, classes)
    return state, students[0]


def student_seed(seed: int, which: int) -> int:
    """Decides the initial weights of one of several students: the run's own seed, then others."""
    return seed if which == 0 else int(stream(seed, "student", which).integers(2**32))


def locate_weights(config: Model) -> Weights | None:
    """The weights of `model.weights`, unless random ones are asked for."""
    if config.weights is None:
        return None
    with collector_paused():
        from oneway.runs.weights import locate  # with timm, which toys do without

    return locate(config)


def load_teacher(config: Config) -> TrainedModel | None:
    """The model of `teacher`, where there is one."""
    if config.teacher is None:
        return None
    if not is_there(config.teacher):
        raise UserError(
            f"teacher {config.teacher}: no such file or folder. A run needs its teacher to the end, and checkpoints "
            "do not hold it: bring it back, or say where it is now with --teacher RUN."
        )
    file = refuse_link(config.teacher / MODEL) if config.teacher.is_dir() else config.teacher
    return load_model(file, torch.device("cpu"), config.model.factory)


def compare_teacher(teacher: TrainedModel, dataset: Dataset, config: Config) -> str:
    """A note on a teacher that sees things at another size than it has learnt from; or nothing.

    Raises:
        UserError: Its classes are others, or in another order; or it would see other bands or bits of images.
    """
    who = f"teacher {config.teacher}"
    if teacher.classes != dataset.classes:
        raise UserError(
            f"{who}: was trained on the classes {listed(teacher.classes, most=20)}, and the data "
            f"have {listed(dataset.classes, most=20)}. Give a run with the same classes in the same order."
        )
    refuse_other_style(who, teacher.image_style, dataset)
    if teacher.reduction == dataset.reduction:
        return ""
    return (
        f"{who}: large images were read at up to 1/{teacher.reduction} of their size for it, and at up to "
        f"1/{dataset.reduction} here (data.reduction): it may know less of what they show."
    )


def prepare(
    config: Model,
    classes: int,
    seed: int,
    task: Task,
    crop: tuple[int, int] | None,
    weights: Weights | None = None,
    filled: Collection[str] = (),
) -> Prepared:
    """The configured network: random, then filled with the weights that were located; if not ours, it is examined.

    Where a checkpoint has the weights, `filled` are the parameters that were filled when the run began.
    """
    network, remarks = build(config, classes, seed), []
    if config.factory is not None and crop is not None:
        remarks = examine(network, config.factory, classes, task, crop)
    if weights is None:
        known = [parameter for name, parameter in network.named_parameters() if name in filled]
        return Prepared(network, known, remarks)
    from oneway.runs.weights import load_weights  # likewise

    loaded = load_weights(network, weights)
    return Prepared(network, loaded.parameters, [*remarks, *loaded.remarks])
