"""Algorithm 1, against a literal and slow transcription of it: float64, plain autograd, no tricks."""

from __future__ import annotations

from copy import deepcopy
from weakref import WeakSet

import pytest
import torch
from torch import Tensor, nn

from algorithms import batch_of, gradients
from oneway import data
from oneway.common.terms import IGNORE
from oneway.config import Model, Perturb
from oneway.draws import draw, draw_perturbation
from oneway.engine.jitter import jitter_inputs, jitter_labels
from oneway.engine.start import plan_of
from oneway.engine.step import mixed_batch
from oneway.engine.store import Store
from oneway.models import build
from oneway.models.ema import init_ema
from oneway.models.norm import NormPolicy
from oneway.ops.cutmix import box_mask
from oneway.ops.warp import sampling_points
from oneway.perturb import phtps
from small_runs import small_streets

SIZE = (32, 40)
CLASSES = 5
ALPHA = 0.5
PERTURB = Perturb(geometric=1.5)


def network(seed: int) -> nn.Module:
    model = build(Model(width=0.125), CLASSES, seed).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bn2.weight"):
            nn.init.ones_(parameter)  # residual branches start at zero; let them take part
    return model.train()


def world(ignored: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x_l = torch.rand(3, 3, *SIZE, dtype=torch.float64, generator=generator)
    y_l = torch.randint(CLASSES, (3, *SIZE), generator=generator)
    if ignored:
        y_l[torch.rand(y_l.shape, generator=generator) < 0.3] = IGNORE
        y_l[0] = IGNORE
    x_u = torch.rand(4, 3, *SIZE, dtype=torch.float64, generator=generator)
    return x_l, y_l, x_u


def literally_warped(x: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Bilinear interpolation written as its definition, a sum over all pixels; and the same of an image of ones."""
    height, width = x.shape[-2:]
    rows = torch.arange(height, dtype=x.dtype)
    columns = torch.arange(width, dtype=x.dtype)
    row_weights = (1 - (points[..., 1, None] - rows).abs()).clamp(min=0)  # N×H×W×rows
    column_weights = (1 - (points[..., 0, None] - columns).abs()).clamp(min=0)
    warped = torch.einsum("nijr,nijs,ncrs->ncij", row_weights, column_weights, x)
    ones = torch.einsum("nijr,nijs->nij", row_weights, column_weights)
    return warped, ones


def literal_losses(
    student: nn.Module, teacher: nn.Module, x_l: Tensor, y_l: Tensor, x_u: Tensor
) -> tuple[Tensor, Tensor]:
    """L_s and L_c, sum by sum. The student is in training mode, the teacher in the mode that it comes in."""

    def probabilities(model: nn.Module, x: Tensor) -> Tensor:
        logits = nn.functional.interpolate(model(x), SIZE, mode="bilinear")
        return logits.exp() / logits.exp().sum(dim=1, keepdim=True)

    p_l = probabilities(student, x_l)
    terms = [-p_l[n, y_l[n, i, j], i, j].log() for n, i, j in (y_l != IGNORE).nonzero()]
    loss_s = torch.stack(terms).mean()

    draw = draw_perturbation(0, 0, len(x_u))
    points = sampling_points(PERTURB.geometric * PERTURB.deviation * SIZE[0] * draw.displacements.double(), *SIZE)
    p_t, ones = literally_warped(probabilities(teacher, x_u).detach(), points)
    perturbed = phtps(draw, x_u, PERTURB).image(x_u)
    p_s = probabilities(student, perturbed)
    terms = [
        (p_t[n, :, i, j] * (p_t[n, :, i, j].log() - p_s[n, :, i, j].log())).sum()
        for n, i, j in ((ones - 1).abs() < 1e-9).nonzero()
    ]
    return loss_s, torch.stack(terms).mean()


@pytest.mark.parametrize(
    ("teacher_kind", "ignored", "update_on_perturbed"),
    [
        ("simple", False, False),
        ("simple", True, True),
        ("simple, by its batch", True, False),
        ("simple, by its batch", False, True),
        ("mean", True, False),
        ("mean", False, True),
    ],
)
def test_gradient_and_statistics_are_those_of_the_paper(teacher_kind, ignored, update_on_perturbed):
    """Gradients to 1e-9; running statistics exactly those of the passes that the policy lets update them."""
    x_l, y_l, x_u = world(ignored)
    student = network(0)
    teacher = init_ema(network(1)) if teacher_kind == "mean" else student

    # The transcription: copies play each role, so that no mode needs switching.
    reference = deepcopy(student)
    seen_labelled = deepcopy(student)
    seen_labelled(x_l)  # a simple teacher's population statistics include this iteration's labelled batch
    if teacher_kind == "simple, by its batch":
        frozen = seen_labelled  # in training mode, so that it sees the unlabelled batch as well
    else:
        frozen = (teacher if teacher_kind == "mean" else deepcopy(seen_labelled)).eval()
    loss_s, loss_c = literal_losses(reference, frozen, x_l, y_l, x_u)
    (loss_s + ALPHA * loss_c).backward()

    perturbation = phtps(draw_perturbation(0, 0, len(x_u)), x_u, PERTURB)
    teacher_before = {name: value.clone() for name, value in teacher.state_dict().items()}
    norms = NormPolicy(
        "both" if update_on_perturbed else "clean", "batch" if teacher_kind == "simple, by its batch" else "population"
    )
    losses = gradients("simple-phtps", student, teacher, batch_of(x_l, y_l, x_u, [perturbation]), norms)

    torch.testing.assert_close(losses["supervised"], loss_s.detach(), atol=1e-9, rtol=0)
    torch.testing.assert_close(losses["consistency"], loss_c.detach(), atol=1e-9, rtol=0)
    for (name, ours), literal in zip(student.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, literal.grad, atol=1e-9, rtol=0, msg=lambda m, n=name: f"{n}: {m}")

    if update_on_perturbed:
        seen_labelled(perturbation.image(x_u))
    for (name, buffer), wanted in zip(student.named_buffers(), seen_labelled.buffers(), strict=True):
        assert torch.equal(buffer, wanted), name
    if teacher_kind == "mean":
        assert all(torch.equal(value, teacher_before[name]) for name, value in teacher.state_dict().items())
        assert all(p.grad is None for p in teacher.parameters())
    assert student.training


def test_supervised_step_is_cross_entropy_alone():
    """Without unlabelled images the gradient is that of L_s."""
    x_l, y_l, _ = world(ignored=True)
    student = network(0)
    reference = deepcopy(student)
    logits = nn.functional.interpolate(reference(x_l), SIZE, mode="bilinear")
    nn.functional.cross_entropy(logits, y_l, ignore_index=IGNORE).backward()
    losses = gradients("supervised", student, student, batch_of(x_l, y_l))
    assert losses.keys() == {"supervised"}
    for ours, literal in zip(student.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, literal.grad, atol=1e-12, rtol=0)


class Saved:
    """A tensor that a graph keeps for its backward pass; lives exactly as long as the graph does."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def test_memory_behaviour_of_algorithm_1():
    """The supervised pass has freed its activations when the teacher runs, and the teacher keeps none of its own."""
    x_l, y_l, x_u = world(ignored=False)
    student = network(0)
    alive: WeakSet[Saved] = WeakSet()

    def pack(tensor: Tensor) -> Saved:
        saved = Saved(tensor)
        alive.add(saved)
        return saved

    numbers: list[int] = []
    student.register_forward_hook(lambda *_: numbers.append(sum(saved.tensor.numel() for saved in alive)))
    perturbation = phtps(draw_perturbation(0, 0, len(x_u)), x_u, PERTURB)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        gradients("simple-phtps", student, student, batch_of(x_l, y_l, x_u, [perturbation]))
    after_labelled, after_teacher, after_perturbed = numbers
    assert after_labelled > 100_000
    assert after_teacher < 0.01 * after_labelled
    assert after_perturbed == pytest.approx(after_labelled * len(x_u) / len(x_l), rel=0.1)


def test_frozen_statistics_stay_what_they_were():
    """With `train.batch_norm frozen` no pass moves them, and every parameter still learns."""
    x_l, y_l, x_u = world(ignored=False)
    student = network(0)
    before = {name: buffer.clone() for name, buffer in student.named_buffers()}
    perturbation = phtps(draw_perturbation(0, 0, len(x_u)), x_u, PERTURB)
    gradients("simple-phtps", student, student, batch_of(x_l, y_l, x_u, [perturbation]), NormPolicy("frozen"))
    assert all(torch.equal(before[name], buffer) for name, buffer in student.named_buffers())
    assert all(parameter.grad is not None for parameter in student.parameters())
    assert student.training


def test_labelled_images_are_mixed_with_their_labels():
    """Of the first half of a batch, pairs exchange colours and labels of the same pixels; the second half stays."""
    config = small_streets(method="supervised-colour-cutmix-aug", train={"batch_labelled": 8}, perturb={"colour": 0.0})
    store = Store.hold(data.load(config.data).read("train"), torch.device("cpu"))
    table = draw(plan_of(config, range(4), range(16)), 3)
    x, y = jitter_inputs(store, table.labelled, config.jitter), jitter_labels(store, table.labelled, config.jitter)
    mixed, labels = mixed_batch(store, table, config).labelled()
    inside = box_mask(table.augmentation.boxes, x.shape[2:])
    assert len(inside) == 2
    for n, partner in ((0, 2), (1, 3), (2, 0), (3, 1)):
        torch.testing.assert_close(mixed[n], torch.where(inside[n % 2], x[partner], x[n]))
        assert torch.equal(labels[n], torch.where(inside[n % 2], y[partner], y[n]))
        assert not torch.equal(labels[n], y[n])
    assert torch.equal(mixed[4:], x[4:])
    assert torch.equal(labels[4:], y[4:])


@pytest.mark.parametrize(("method", "perturbed"), [("supervised-phtps-aug", 4), ("supervised-phtps-aug-all", 8)])
def test_half_or_all_of_the_labelled_images_are_perturbed(method, perturbed):
    """The first ones, with their labels; what of both lies outside the image is ignored."""
    config = small_streets(method=method, train={"batch_labelled": 8})
    store = Store.hold(data.load(config.data).read("train"), torch.device("cpu"))
    table = draw(plan_of(config, range(4), range(16)), 3)
    x, y = jitter_inputs(store, table.labelled, config.jitter), jitter_labels(store, table.labelled, config.jitter)
    changed, labels = mixed_batch(store, table, config).labelled()
    same = [torch.equal(*pair) for pair in zip(x, changed, strict=True)]
    assert same == [n >= perturbed for n in range(8)]
    assert [torch.equal(*pair) for pair in zip(y, labels, strict=True)] == same


def test_colours_of_mixed_labelled_images_change():
    config = small_streets(method="supervised-colour-cutmix-aug", train={"batch_labelled": 8})
    store = Store.hold(data.load(config.data).read("train"), torch.device("cpu"))
    table = draw(plan_of(config, range(4), range(16)), 3)
    plain = config.changed(perturb={"colour": 0.0})
    (x, y), (coloured, labels) = (mixed_batch(store, table, each).labelled() for each in (plain, config))
    assert not torch.isclose(coloured[:4], x[:4]).flatten(1).all(dim=1).any()
    assert torch.equal(labels, y)
