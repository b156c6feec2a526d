"""The roles of networks in a method: students learn, teachers make targets.

Shapes: N images of H×W pixels, C classes; logits are N×C×h×w, or N×C.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from oneway.models.features import classified_features, scaled_features
from oneway.models.norm import (
    NormPolicy,
    frozen_statistics,
    student_statistics,
    teacher_statistics,
    untracked_statistics,
)
from oneway.ops.side_stream import on_side_stream


@dataclass(frozen=True)
class Models:
    """Students, and the teacher of each: its EMA, the student itself, or a frozen network."""

    students: tuple[nn.Module, ...]
    teachers: tuple[nn.Module, ...]
    norms: NormPolicy = field(default_factory=NormPolicy)
    frozen: bool = False
    """Whether the teachers are networks from another run, which stay as they are."""

    heads: tuple[nn.Module, ...] = ()
    """What learns or remembers beside the students and is not saved with the model, such as a projector of features."""

    @property
    def learning(self) -> tuple[nn.Module, ...]:
        """All networks that the optimiser updates."""
        return (*self.students, *self.heads)

    def student(self, x: Tensor, clean: bool = True, which: int = 0, features: Tensor | None = None) -> Tensor:
        """A student's logits, with a gradient.

        Args:
            x: N×3×H×W.
            clean: Whether the images are clean; by default, perturbed ones do not update batch norm's statistics.
            which: The student, where there are several.
            features: N×K factors of the channels that the decoder receives from the encoder.
        """
        student = self.students[which]
        dropped = nullcontext() if features is None else scaled_features(student, features)
        with student_statistics(student, self.norms, clean), dropped:
            return student(x)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The student's logits of perturbed images, and the features that its classifier receives."""
        student = self.students[0]
        with student_statistics(student, self.norms, clean=False), classified_features(student) as found:
            logits = student(x)
        return logits, found[0]

    def teacher(self, x: Tensor, clean: bool = True, which: int = 0) -> Tensor:
        """A teacher's logits, without a gradient, so that no activations are kept."""
        teacher, student = self.teachers[which], self.students[which]
        with torch.no_grad(), teacher_statistics(teacher, student, self.norms, clean):
            return teacher(x)

    def teacher_on_side_stream(self, x: Tensor, clean: bool = True) -> Callable[[], Tensor]:
        """`teacher`, computed on a side stream during the student's next prediction; call what is returned to wait.

        A simple teacher may read batch norm's running statistics, so that prediction must not update them: perturbed
        images do so only with `train.batch_norm` at `both`, and then the teacher is computed first.
        """
        simple = self.teachers[0] is self.students[0]
        if simple and self.norms.student == "both":
            logits = self.teacher(x, clean)
            return lambda: logits
        of_batch = simple and self.norms.teacher != "population"  # statistics over all processes
        return on_side_stream(lambda images: self.teacher(images, clean), x, communicates=of_batch)

    def probe(self, x: Tensor) -> Tensor:
        """The student's logits with a gradient, without an update of batch norm's running statistics."""
        student = self.students[0]
        untouched = frozen_statistics if self.norms.student == "frozen" else untracked_statistics
        with untouched(student):
            return student(x)
