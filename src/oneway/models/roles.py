"""The parts that networks play in a method: students learn, teachers do not.

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
from oneway.ops.beside import beside


@dataclass(frozen=True)
class Models:
    """Students, and the teacher of each: an average of it, the student itself, or a network that stays as it is."""

    students: tuple[nn.Module, ...]
    teachers: tuple[nn.Module, ...]
    norms: NormPolicy = field(default_factory=NormPolicy)
    frozen: bool = False
    """Whether the teachers are networks from elsewhere, which stay as they are."""

    heads: tuple[nn.Module, ...] = ()
    """What learns with the students and is not kept with them: a projector of features, say."""

    @property
    def learning(self) -> tuple[nn.Module, ...]:
        """All that an optimiser changes."""
        return (*self.students, *self.heads)

    def student(self, x: Tensor, clean: bool = True, which: int = 0, features: Tensor | None = None) -> Tensor:
        """Logits that learn.

        Args:
            x: N×3×H×W.
            clean: Whether the images are, for the statistics that batch norm keeps.
            which: Of several students.
            features: N×K factors of the channels that the decoder receives from the encoder.
        """
        student = self.students[which]
        dropped = nullcontext() if features is None else scaled_features(student, features)
        with student_statistics(student, self.norms, clean), dropped:
            return student(x)

    def features(self, x: Tensor, clean: bool = False, which: int = 0) -> tuple[Tensor, Tensor]:
        """A student's logits, and the features that its classifier made them of."""
        student = self.students[which]
        with student_statistics(student, self.norms, clean), classified_features(student) as found:
            logits = student(x)
        return logits, found[0]

    def teacher(self, x: Tensor, clean: bool = True, which: int = 0) -> Tensor:
        """Logits to learn from: without a gradient, so that no activations are kept."""
        teacher, student = self.teachers[which], self.students[which]
        with torch.no_grad(), teacher_statistics(teacher, student, self.norms, clean):
            return teacher(x)

    def teacher_beside(self, x: Tensor, clean: bool = True, which: int = 0) -> Callable[[], Tensor]:
        """`teacher`, computed beside a student's prediction that follows; what is returned waits for the logits.

        A simple teacher reads the statistics that batch norm keeps, which that student must not move: unless all
        students do, those of perturbed images do not.
        """
        simple = self.teachers[which] is self.students[which]
        if simple and self.norms.student == "both":
            logits = self.teacher(x, clean, which)
            return lambda: logits
        of_batch = simple and self.norms.teacher != "population"  # statistics that processes make together
        return beside(lambda images: self.teacher(images, clean, which), x, communicates=of_batch)

    def probe(self, x: Tensor, which: int = 0) -> Tensor:
        """A student's logits with a gradient, but no trace in the statistics that batch norm keeps."""
        student = self.students[which]
        untouched = frozen_statistics if self.norms.student == "frozen" else untracked_statistics
        with untouched(student):
            return student(x)
