"""Every variant's gradient, against a literal transcription of its formula in float64."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from algorithms import batch_of, settings
from oneway.config import Perturb
from oneway.draws import draw_perturbation
from oneway.methods import VARIANTS, VariantName
from oneway.methods.consistency import consistency
from oneway.models.ema import init_ema
from oneway.models.roles import Models
from oneway.ops.warp import Warp, sampling_points, splat
from oneway.perturb import Perturbation, PhTPS, phtps

SIZE = (20, 28)
CLASSES = 4
PERTURB = Perturb(geometric=1.5)


class Tiny(nn.Module):
    """Enough of a segmentation network: batch norm, a stride, and a prediction at half the resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6, momentum=0.3), nn.Tanh(), nn.Conv2d(6, CLASSES, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return 3 * self.layers(x)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = Tiny().double()
    model(torch.rand(4, 3, *SIZE, dtype=torch.float64))  # statistics that are not the initial ones
    return model


def probabilities(model: nn.Module, x: Tensor) -> Tensor:
    return nn.functional.interpolate(model(x), SIZE, mode="bilinear").softmax(dim=1)


def literal_warp(x: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Bilinear sampling as its definition, a sum over all pixels; and which samples lie wholly inside."""
    rows, columns = (torch.arange(length, dtype=x.dtype) for length in SIZE)
    row_weights = (1 - (points[..., 1, None] - rows).abs()).clamp(min=0)
    column_weights = (1 - (points[..., 0, None] - columns).abs()).clamp(min=0)
    ones = torch.einsum("nijr,nijs->nij", row_weights, column_weights)
    return torch.einsum("nijr,nijs,ncrs->ncij", row_weights, column_weights, x), (ones - 1).abs() < 1e-9


def literal_loss(variant: str, student: nn.Module, teacher: nn.Module, x: Tensor) -> Tensor:
    """D(·, ·) of the paper with the models in their places; `teacher` is frozen and in evaluation mode."""
    draw, other = draw_perturbation(0, 0, len(x)), draw_perturbation(1, 0, len(x))
    scale = PERTURB.geometric * PERTURB.deviation * SIZE[0]
    points, other_points = (sampling_points(scale * d.displacements.double(), *SIZE) for d in (draw, other))
    perturbed, other_perturbed = (phtps(d, x, PERTURB).image(x) for d in (draw, other))

    if variant in ("1w-ct", "1w-cs", "2w-c1"):
        clean_model = teacher if variant == "1w-ct" else student
        perturbed_model = teacher if variant == "1w-cs" else student
        first, valid = literal_warp(probabilities(clean_model, x), points)
        second = probabilities(perturbed_model, perturbed)
    else:
        first_model = student if variant == "2w-p2" else teacher
        restored, seen = splat(probabilities(first_model, other_perturbed), other_points)
        first, valid = literal_warp(restored, points)
        seen_after, _ = literal_warp(seen[:, None].double(), points)
        valid = valid & ((seen_after[:, 0] - 1).abs() < 1e-9)
        second = probabilities(student, perturbed)

    terms = [
        (first[n, :, i, j] * (first[n, :, i, j].log() - second[n, :, i, j].log())).sum() for n, i, j in valid.nonzero()
    ]
    return torch.stack(terms).mean()


def ours(
    variant: VariantName,
    student: nn.Module,
    teacher: nn.Module,
    x: Tensor,
    views: Sequence[Perturbation] | None = None,
) -> Tensor:
    views = views or [phtps(draw_perturbation(seed, 0, len(x)), x, PERTURB) for seed in (0, 1)]
    models = Models((student,), (teacher,))
    return consistency(models, batch_of(x, x, x, views), settings(variant))


def inputs() -> Tensor:
    return torch.rand(3, 3, *SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def frozen(model: nn.Module) -> nn.Module:
    return deepcopy(model).eval().requires_grad_(False)


CASES = [(name, kind) for name in VARIANTS for kind in ("simple", "mean") if kind == "simple" or "2w" not in name]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_gradient_is_that_of_the_formula(name, kind):
    """Value and gradient to 1e-9: which branch learns, which is frozen, and the order of D's arguments."""
    x, student = inputs(), network(0)
    teacher = student if kind == "simple" else init_ema(network(1))
    reference, reference_teacher = deepcopy(student), frozen(teacher)
    if kind == "simple" and name == "1w-cs":
        # Its clean pass comes first and moves the statistics that the teacher then uses.
        after_clean_pass = deepcopy(student)
        after_clean_pass(x)
        reference_teacher = frozen(after_clean_pass)
    expected = literal_loss(name, reference, reference_teacher, x)
    expected.backward()
    loss = ours(name, student, teacher, x)
    loss.backward()
    torch.testing.assert_close(loss, expected, atol=1e-9, rtol=0)
    for mine, theirs in zip(student.parameters(), reference.parameters(), strict=True):
        assert mine.grad is not None
        assert mine.grad.abs().max() > 1e-6
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-9, rtol=0)
    if kind == "mean":
        assert all(parameter.grad is None for parameter in teacher.parameters())


@pytest.mark.parametrize(("one_way", "two_way"), [("1w-ct", "2w-c1"), ("1w-cs", "2w-c1"), ("1w-p2", "2w-p2")])
def test_stopping_the_gradient_matters(one_way, two_way):
    """A one-way variant without its stop-gradient would be the two-way one, whose gradient is another."""
    gradients = []
    for name in (one_way, two_way):
        student = network(0)
        ours(name, student, student, inputs()).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in student.parameters() if p.grad is not None]))
    assert (gradients[0] - gradients[1]).abs().max() > 1e-4


@pytest.mark.parametrize("name", VARIANTS)
def test_statistics_follow_clean_inputs_of_the_student(name):
    """Running statistics move in 1w-cs and 2w-c1, whose student sees the clean image, and in no other variant."""
    x, student = inputs(), network(0)
    expected = deepcopy(student)
    if name in ("1w-cs", "2w-c1"):
        expected(x)
    ours(name, student, student, x)
    for mine, wanted in zip(student.buffers(), expected.buffers(), strict=True):
        assert torch.equal(mine, wanted)


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_valid_is_no_loss(name):
    """A warp that leaves no pixel gives 0 and gradients of 0, not NaN."""
    x, student = inputs(), network(0)
    away = PhTPS(None, Warp(torch.full((3, 4, 2), 1000.0, dtype=torch.float64), *SIZE))
    loss = ours(name, student, student, x, [away, away])
    loss.backward()
    assert loss == 0
    assert all((p.grad == 0).all() for p in student.parameters() if p.grad is not None)
