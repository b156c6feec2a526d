"""The methods of the field: each loss and gradient against a literal transcription in float64, and runs that resume."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from scipy.stats import beta, kstest, uniform
from torch import Tensor, nn

from algorithms import settings
from oneway import ops
from oneway.common.errors import UserError
from oneway.common.streams import stream
from oneway.common.terms import IGNORE
from oneway.config import Perturb
from oneway.config.recipes import configured
from oneway.draws import (
    ClassAndChannelDraws,
    PerturbationDraw,
    Plan,
    Squares,
    columns_of,
    draw,
    draw_perturbation,
    part,
)
from oneway.engine.step import Measured, add_gradients
from oneway.methods import METHODS
from oneway.methods.interface import Batch
from oneway.models.ema import init_ema
from oneway.models.roles import Models
from oneway.ops.cutmix import box_mask
from oneway.ops.warp import sampling_points, valid_points, warp
from oneway.perturb import perturbation
from small_runs import assert_resumes, small_streets
from test_consistency import Tiny, frozen

SIZE = (20, 28)
CLASSES = 4
N = 4
QUIET = Console(quiet=True)


def network(seed: int) -> nn.Module:
    """A network in double precision with statistics that are not the initial ones."""
    torch.manual_seed(seed)
    model = Tiny().double()
    model(torch.rand(N, 3, *SIZE, dtype=torch.float64))
    return model


def images(seed: int) -> Tensor:
    return torch.rand(N, 3, *SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def selection(channels: int = 0) -> ClassAndChannelDraws:
    random = stream(3, "test")
    return ClassAndChannelDraws(*(torch.from_numpy(random.random(shape)) for shape in ((N, 256), (N, channels), (N,))))


def labelled() -> tuple[Tensor, Tensor]:
    return images(8), torch.randint(0, CLASSES, (N, *SIZE), generator=torch.Generator().manual_seed(9))


def draws() -> list[PerturbationDraw]:
    """Of two views, in both of which pairs exchange rectangles, small ones too."""
    return [draw_perturbation(seed, 0, N) for seed in (7, 1)]


def batch_for(method: str, x: Tensor, channels: int = 0) -> Batch:
    views, names = draws(), METHODS[method].perturb
    changes = [perturbation(names, view, x, Perturb()) for view in views]
    return Batch(labelled, lambda: x, lambda x, view: changes[view], None, selection(channels))


def probabilities(model: nn.Module, x: Tensor) -> Tensor:
    return F.interpolate(model(x), SIZE, mode="bilinear").softmax(dim=1)


def literal_cross_entropy(p: Tensor, labels: Tensor, counted: Tensor | None = None) -> Tensor:
    """−log p[label] pixel by pixel, 0 where it does not count; the mean over all pixels."""
    counted = torch.ones_like(labels, dtype=torch.bool) if counted is None else counted
    total = sum(
        -p[n, labels[n, i, j], i, j].log()
        for n, i, j in counted.nonzero().tolist()  # one pixel after another
    )
    return total / labels.numel()


def assert_same_gradients(losses, students, expected, references) -> Measured:
    """All losses of a method together: the sum of L_s and the rest, weighted, and its gradient."""
    parameters = [parameter for student in students for parameter in student.parameters()]
    measured = add_gradients(losses, parameters)
    expected.backward()
    wanted = [parameter for reference in references for parameter in reference.parameters()]
    for mine, theirs in zip(parameters, wanted, strict=True):
        assert mine.grad is not None
        assert mine.grad.abs().max() > 1e-6
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-9, rtol=0)
    return measured


def test_half_of_the_classes_are_chosen_by_lot():
    """⌊n/2⌋ of the n classes that are there, those with the smallest numbers; each pixel with its class."""
    labels = torch.tensor([[[0, 0, 2, 5]], [[1, 1, 1, 1]], [[3, 4, 0, 3]], [[6, 5, 4, 3]]])
    numbers = torch.tensor(
        [
            [0.5, 0.0, 0.4, 0.9, 0.8, 0.6, 0.1],
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
            [0.9, 0.9, 0.9, 0.2, 0.3, 0.1, 0.1],
            [0.0, 0.0, 0.0, 0.9, 0.1, 0.7, 0.2],
        ]
    )
    chosen = ops.half_of_classes(labels, numbers, classes=7)
    assert chosen.int().tolist() == [[[0, 0, 1, 0]], [[0, 0, 0, 0]], [[1, 0, 0, 1]], [[1, 0, 1, 0]]]


def test_every_half_is_equally_probable():
    """Of 4 classes, each of the 6 pairs in a sixth of 6,000 draws."""
    labels = torch.arange(4).view(1, 1, 4).expand(6000, 1, 4)
    numbers = torch.from_numpy(stream(0, "test").random((6000, 256)))
    chosen = ops.half_of_classes(labels, numbers, classes=4).flatten(1).int()
    counts = torch.unique(chosen, dim=0, return_counts=True)[1]
    assert len(counts) == 6
    assert (counts - 1000).abs().max() < 120


def test_classmix():
    """λ H(Y, h(X)), images and labels mixed one pixel at a time; colours of the mixed image change."""
    x, student, teacher = images(1), network(0), init_ema(network(1))
    chosen = settings(alpha=0.7, confidence=0.5)
    reference, batch = deepcopy(student), batch_for("classmix", x)

    p = probabilities(frozen(teacher), x)
    certainty, winner = p.max(dim=1)
    mixed, labels, sure = x.clone(), winner.clone(), 0
    for n in range(N):
        present = sorted(set(winner[n].flatten().tolist()), key=lambda c: float(batch.selection.classes[n, c]))
        assert len(present) > 1
        pasted = present[: len(present) // 2]
        other = (n + N // 2) % N
        for i in range(SIZE[0]):
            for j in range(SIZE[1]):
                source = n if winner[n, i, j] in pasted else other
                mixed[n, :, i, j], labels[n, i, j] = x[source, :, i, j], winner[source, i, j]
                sure += int(certainty[source, i, j] > 0.5)
    assert 0.1 < sure / winner.numel() < 0.9
    x_l, y_l = labelled()
    expected = literal_cross_entropy(probabilities(reference, x_l), y_l)
    coloured = ops.jitter_colours(mixed, draws()[0].colours, 1.0)
    consistency = sure / winner.numel() * literal_cross_entropy(probabilities(reference, coloured), labels)
    losses = METHODS["classmix"].generator()(Models((student,), (teacher,)), batch, chosen)
    measured = assert_same_gradients(losses, [student], expected + 0.7 * consistency, [reference])
    torch.testing.assert_close(measured["consistency"], consistency.detach(), atol=1e-9, rtol=0)
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_cps():
    """Each student against the other's hard decisions, with rectangles exchanged pixel by pixel."""
    x, students = images(1), [network(0), network(1)]
    references, batch = deepcopy(students), batch_for("cps", x)
    inside = box_mask(draws()[0].boxes, SIZE)

    def exchanged(values: Tensor) -> Tensor:
        result = values.clone()
        for pair, i, j in inside.nonzero().tolist():
            result[pair, ..., i, j], result[pair + 2, ..., i, j] = values[pair + 2, ..., i, j], values[pair, ..., i, j]
        return result

    x_l, y_l = labelled()
    supervised = [literal_cross_entropy(probabilities(reference, x_l), y_l) for reference in references]
    with torch.no_grad():
        decisions = [exchanged(probabilities(frozen(reference), x).argmax(dim=1)) for reference in references]
    crossed = [
        literal_cross_entropy(probabilities(references[0], exchanged(x)), decisions[1]),
        literal_cross_entropy(probabilities(references[1], exchanged(x)), decisions[0]),
    ]
    models = Models(tuple(students), tuple(students))
    losses = METHODS["cps"].generator()(models, batch, settings(alpha=1.5, confidence=0.0, loss="confident"))
    measured = assert_same_gradients(losses, students, sum(supervised) + 1.5 * sum(crossed), references)
    torch.testing.assert_close(measured["consistency"], sum(crossed).detach(), atol=1e-9, rtol=0)


def test_fixmatch():
    """H(y, h(T(x))) where the teacher is sure of y; other pixels count as 0, in a mean over all of them."""
    x, student, teacher = images(1), network(0), init_ema(network(1))
    reference, batch = deepcopy(student), batch_for("fixmatch", x)
    certainty, winner = probabilities(frozen(teacher), x).max(dim=1)
    view = draws()[0]
    changed = ops.jitter_colours(x, view.colours, 1.0)
    mixed, labels, sure = changed.clone(), winner.clone(), certainty > 0.5
    exchanged = box_mask(view.small_boxes, SIZE).nonzero().tolist()
    assert exchanged
    for pair, i, j in exchanged:
        for here, there in ((pair, pair + 2), (pair + 2, pair)):
            mixed[here, :, i, j], labels[here, i, j] = changed[there, :, i, j], winner[there, i, j]
            sure[here, i, j] = certainty[there, i, j] > 0.5
    x_l, y_l = labelled()
    expected = literal_cross_entropy(probabilities(reference, x_l), y_l)
    consistency = literal_cross_entropy(probabilities(reference, mixed), labels, sure)
    chosen = settings(alpha=0.7, confidence=0.5, loss=METHODS["fixmatch"].loss)
    losses = METHODS["fixmatch"].generator()(Models((student,), (teacher,)), batch, chosen)
    measured = assert_same_gradients(losses, [student], expected + 0.7 * consistency, [reference])
    torch.testing.assert_close(measured["consistency"], consistency.detach(), atol=1e-9, rtol=0)


def test_fixmatch_ema():
    """L_s + α H(y, h(T(x))) where the student is sure of y; labelled, clean and perturbed images are one batch."""
    x, student, teacher = images(1), network(0), init_ema(network(1))
    reference, batch = deepcopy(student), replace(batch_for("fixmatch-ema", x), selection=None)
    view = draws()[0]
    points = sampling_points(0.05 * SIZE[0] * view.displacements.double(), *SIZE)
    strong = warp(ops.vary_intensity(x, view.intensities), points)
    for n, i, j in ops.square_mask(view.squares, SIZE).nonzero().tolist():
        strong[n, :, i, j] = 0.5
    x_l, y_l = labelled()
    q_l, p, q = probabilities(reference, torch.cat((x_l, x, strong))).split((len(x_l), N, N))
    certainty, winner = warp(p.detach(), points).max(dim=1)
    valid = valid_points(points)
    share = valid.numel() / int(valid.sum())  # the mean is over valid pixels
    consistency = share * literal_cross_entropy(q, winner, valid & (certainty > 0.5))
    expected = literal_cross_entropy(q_l, y_l) + 0.7 * consistency
    chosen = settings(alpha=0.7, confidence=0.5, loss=METHODS["fixmatch-ema"].loss)
    losses = METHODS["fixmatch-ema"].generator()(Models((student,), (teacher,)), batch, chosen)
    measured = assert_same_gradients(losses, [student], expected, [reference])
    torch.testing.assert_close(measured["consistency"], consistency.detach(), atol=1e-9, rtol=0)


def test_augseg():
    """Squares of labelled images in those that the teacher doubts, and squares of these in others, pixel by pixel.

    There are three labelled images, and every other pixel of them has no label: the fourth image gets the first again.
    """
    x, student, teacher = images(1), network(0), init_ema(network(1))
    x_l, y_l = (each[:3] for each in labelled())
    y_l[:, :, ::2] = IGNORE
    augseg = draw(replace(PLAN, batch_unlabelled=N, injects=True), 5).augseg
    augseg = augseg._replace(u=torch.tensor([0.9, 0.01, 0.02, 0.8]))
    reference, plain = deepcopy(student), batch_for("augseg", x)
    batch = replace(plain, labelled=lambda: (x_l, y_l), augseg=augseg)

    p = probabilities(frozen(teacher), x)
    certainty, winner = p.max(dim=1)
    strong = ops.vary_intensity(x, draws()[0].intensities)
    sureness = [
        sum(
            (1 + sum(float(q * q.log()) for q in p[n, :, i, j]) / math.log(CLASSES)) * float(p[n, :, i, j].max())
            for i in range(SIZE[0])
            for j in range(SIZE[1])
        )
        / (SIZE[0] * SIZE[1])
        for n in range(N)
    ]

    def within(squares: Squares, n: int) -> list[tuple[int, int]]:
        """Pixels from the centre less half of the side to the centre plus half of it, in whole pixels."""
        spans = []
        for centre, length in zip((float(squares.y[n]), float(squares.x[n])), SIZE, strict=True):
            half, middle = int(float(squares.side[n]) * length) // 2, int(centre * length)
            spans.append(range(max(0, middle - half), min(length, middle + half)))
        return [(i, j) for i in spans[0] for j in spans[1]]

    injected = [strong.clone(), winner.clone(), certainty.clone()]
    doubted = [n for n in range(N) if float(augseg.u[n]) > sureness[n]]
    assert 0 < len(doubted) < N
    for n in doubted:
        for i, j in within(augseg.labelled, n):
            injected[0][n, :, i, j], injected[1][n, i, j] = x_l[n % 3, :, i, j], y_l[n % 3, i, j]
            injected[2][n, i, j] = 1
    mixed, labels, sure = strong.clone(), winner.clone(), certainty.clone()
    for n in range(N):
        other = (n + N // 2) % N
        for i, j in within(augseg.mixed, n):
            mixed[n, :, i, j], labels[n, i, j] = injected[0][other, :, i, j], injected[1][other, i, j]
            sure[n, i, j] = injected[2][other, i, j]
    valid = labels != IGNORE
    assert not valid.all()
    share = labels.numel() / int(valid.sum())
    consistency = share * literal_cross_entropy(probabilities(reference, mixed), labels, (sure > 0.5) & valid)
    expected = F.cross_entropy(F.interpolate(reference(x_l), SIZE, mode="bilinear"), y_l, ignore_index=IGNORE)
    chosen = settings(alpha=0.7, confidence=0.5, loss="confident")
    losses = METHODS["augseg"].generator()(Models((student,), (teacher,)), batch, chosen)
    measured = assert_same_gradients(losses, [student], expected + 0.7 * consistency, [reference])
    torch.testing.assert_close(measured["consistency"], consistency.detach(), atol=1e-9, rtol=0)


def test_squares_are_as_large_as_augseg_cuts_them():
    """Areas are of Beta(2, 8) for labelled pieces and of Beta(4, 4) for others; there is one size for a batch."""
    tables = [draw(replace(PLAN, injects=True), iteration).augseg for iteration in range(500)]
    for squares, a, b in (([each.labelled for each in tables], 2, 8), ([each.mixed for each in tables], 4, 4)):
        assert all((each.side == each.side[0]).all() for each in squares)
        areas = [float(each.side[0]) ** 2 for each in squares]
        assert kstest(areas, beta(a, b).cdf).pvalue > 0.001
        assert kstest([float(each.y[1]) for each in squares], uniform(1 / 8, 7 / 8).cdf).pvalue > 0.001


@pytest.mark.parametrize("method", ["classmix", "unimatch", "unimatch-v2", "augseg"])
def test_whole_images_are_refused(method):
    """There are no pixels to mix and no decoder."""
    with pytest.raises(UserError, match=f"{method} segments images"):
        configured("cifar10", {"method": method}, source="test")


PLAN = Plan(0, tuple(range(6)), tuple(range(16)), 4, 8, (0.7, 1.4), True, views=2, mixes_classes=True)


def test_lots_shift_no_other_number():
    """A table with them is the table without, and more; they are their iteration's and nobody else's."""
    plain, more = (draw(replace(PLAN, mixes_classes=mixes, droppable_channels=7 * mixes), 3) for mixes in (False, True))
    assert plain.selection is None
    assert [tuple(column.shape) for column in more.selection] == [(8, 256), (8, 7), (8,)]
    for one, other in zip(columns_of(plain), columns_of(more._replace(selection=None)), strict=True):
        assert torch.equal(one, other)
    assert not torch.isclose(more.selection.whole, draw(replace(PLAN, droppable_channels=7), 4).selection.whole).any()


def test_processes_share_every_column():
    """A row for each image, or for each pair: each share has half of the rows, and no row is in both."""
    whole = draw(replace(PLAN, droppable_channels=7), 3)
    shares = [part(whole, rank, 2) for rank in range(2)]
    for column, *parts in zip(columns_of(whole), *map(columns_of, shares), strict=True):
        assert [len(each) for each in parts] == [len(column) // 2] * 2
        assert sorted(torch.cat(parts).flatten().tolist()) == sorted(column.flatten().tolist())


KINDS = ("cps", "unimatch-v2", "augseg")
"""Two students; an average of one, and dropped channels; pieces of other images. The others keep nothing more."""
OTHERS = ("fixmatch", "fixmatch-ema", "classmix", "unimatch")
SMALL = {
    "jitter": {"crop": (32, 48)},
    "train": {"batch_unlabelled": 4, "checkpoint_every": 2, "log_every": 1, "confidence": 0.05},
}


@pytest.mark.parametrize("method", [*KINDS, *(pytest.param(method, marks=pytest.mark.slow) for method in OTHERS)])
def test_a_run_resumes_to_the_bit(method, tmp_path):
    """Four iterations; without the last two, continued, every tensor and every line of the metrics is the same."""
    assert_resumes(small_streets(method=method, **SMALL), tmp_path)


def test_whole_images_are_learnt_by_fixmatch_ema(tiny_cifar, tmp_path):
    """As the recipe has it, but for sizes: the average teaches classes of images, and is what is kept."""
    train = {"iterations": 4, "batch_labelled": 4, "batch_unlabelled": 4, "checkpoint_every": 2, "log_every": 1}
    changes = {"method": "fixmatch-ema", "labels": "20", "train": {**train, "confidence": 0.05}}
    assert_resumes(configured("cifar10", changes | {"data": {"path": tiny_cifar}}, source="test"), tmp_path)
