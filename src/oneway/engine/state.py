"""The state of training: everything that an iteration changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from oneway.engine.guard import StepGuard
from oneway.models.roles import Models


@dataclass(eq=False)
class TrainingState:
    """Students with their teachers, the optimiser, and scalars on the device that a captured step reads and writes."""

    models: Models
    optimiser: torch.optim.Optimizer
    class_weights: Tensor | None = None
    """C factors of the classes' losses, from the frequencies of the run's labels; None unless balanced by frequency."""

    alpha: Tensor = field(init=False)
    """α of the iteration, which a captured step reads here."""

    warm_up: Tensor = field(init=False)
    """The least weight of the student in its average, for the warm-up of the EMA; 0 after it. Read like α."""

    progress: Tensor = field(init=False)
    """The share of the run's iterations that is done. Read like α."""

    skips: Tensor = field(init=False)
    """How many steps were skipped since the run began, and how many in a row up to now."""

    guard: StepGuard = field(init=False)

    def __post_init__(self) -> None:
        self.guard = StepGuard.over(nn.ModuleList(self.models.learning))
        device = next(self.student.parameters()).device
        self.alpha = torch.zeros((), device=device)
        self.warm_up = torch.zeros((), device=device)
        self.progress = torch.zeros((), device=device)
        self.skips = torch.zeros(2, dtype=torch.int64, device=device)

    @property
    def student(self) -> nn.Module:
        """The first student, or the only one."""
        return self.models.students[0]

    @property
    def teacher(self) -> nn.Module:
        """The teacher of the first student."""
        return self.models.teachers[0]

    @property
    def kept(self) -> nn.Module:
        """The model that a run validates and saves: the EMA of the student where there is one, else the student."""
        return self.student if self.models.frozen else self.teacher

    @property
    def averages(self) -> list[tuple[nn.Module, nn.Module]]:
        """Teachers that are EMAs, each with its student."""
        pairs = zip(self.models.teachers, self.models.students, strict=True)
        return [(teacher, student) for teacher, student in pairs if teacher is not student and not self.models.frozen]
