"""Everything that changes while a run trains."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from oneway.engine.guard import Watch
from oneway.models.roles import Models


@dataclass(frozen=True)
class TrainingState:
    """Students with their teachers, the optimiser, and what is counted on the device."""

    models: Models
    optimiser: torch.optim.Optimizer
    class_weights: Tensor | None = None
    """C factors of the classes' losses, where they are balanced by frequency; the labels of the run decide them."""

    alpha: Tensor = field(init=False)
    """α of the iteration, which a captured step reads here."""

    warm_up: Tensor = field(init=False)
    """The least share that a student of the iteration has in its average; likewise, and 0 but in the beginning."""

    skips: Tensor = field(init=False)
    """How many steps were skipped since the run began, and how many in a row up to now."""

    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "watch", Watch.over(nn.ModuleList(self.models.learning)))
        device = next(self.student.parameters()).device
        object.__setattr__(self, "alpha", torch.zeros((), device=device))
        object.__setattr__(self, "warm_up", torch.zeros((), device=device))
        object.__setattr__(self, "skips", torch.zeros(2, dtype=torch.int64, device=device))

    @property
    def student(self) -> nn.Module:
        """The first, or only one."""
        return self.models.students[0]

    @property
    def teacher(self) -> nn.Module:
        """Its teacher."""
        return self.models.teachers[0]

    @property
    def kept(self) -> nn.Module:
        """The model that a run is for: an average of students is better than the last of them."""
        return self.student if self.models.frozen else self.teacher

    @property
    def averages(self) -> list[tuple[nn.Module, nn.Module]]:
        """Teachers that are averages, each with its student."""
        pairs = zip(self.models.teachers, self.models.students, strict=True)
        return [(teacher, student) for teacher, student in pairs if teacher is not student and not self.models.frozen]
