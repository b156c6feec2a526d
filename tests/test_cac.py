"""CAC: its loss and gradient against a literal transcription in float64, its crops, and runs that resume."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algorithms import settings
from oneway import data, ops
from oneway.common.errors import UserError
from oneway.config import Model
from oneway.config.recipes import configured
from oneway.draws import Plan, columns_of, draw, part
from oneway.engine.jitter import OVERLAP, jitter_inputs, jitter_pairs
from oneway.engine.start import training_state
from oneway.engine.step import add_gradients
from oneway.engine.store import Store
from oneway.methods import METHODS
from oneway.methods.interface import Batch, Pair
from oneway.models import build
from oneway.models.norm import NormPolicy
from oneway.models.projector import projector_for
from oneway.models.roles import Models
from oneway.perturb import UNCHANGED
from small_runs import assert_resumes, small_streets

CPU = torch.device("cpu")
SIZE = (32, 40)
N = 3
CLASSES = 4


class Network(nn.Module):
    """Features at stride 4, and a classifier of them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 6, 4, stride=4, bias=False)
        self.head = nn.Sequential(nn.BatchNorm2d(6), nn.Tanh(), nn.Conv2d(6, CLASSES, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def world() -> tuple[Models, Batch]:
    torch.manual_seed(0)
    student = Network().double()
    student.head[2].weight.data *= 4
    projector = projector_for(student, seed=1).double()
    models = Models((student,), (student,), NormPolicy("both"), heads=(projector,))
    random = torch.Generator().manual_seed(2)
    x_l, first, second = (torch.rand(N, 3, *SIZE, dtype=torch.float64, generator=random) for _ in range(3))
    y_l = torch.randint(CLASSES, (N, *SIZE), generator=random)
    inside = torch.ones(N, *SIZE, dtype=torch.bool)
    inside[1, 27:] = False  # so that the last row of cells is left out
    down, right = torch.tensor([1, -2, 0]), torch.tensor([-1, 0, 2])
    pair = Pair(first, second, inside, down, right, torch.rand(N, 20, generator=random))
    return models, Batch(lambda: (x_l, y_l), lambda: first, lambda x, view: UNCHANGED, pair=lambda: pair)


def literal_cells(student: Network, projector: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unit features, certainty and label of every cell of 8×8 pixels: 2×2 places of the network."""
    features = F.avg_pool2d(student.head[1](student.head[0](student.body(x))), 2)
    p = student.head[2](features).softmax(dim=1)
    projected = projector(features)
    return projected / projected.square().sum(dim=1, keepdim=True).sqrt(), *p.max(dim=1)


def literal_direction(mine, theirs, offset, inside, bank, threshold: float) -> tuple[Tensor, int]:
    """Cell by cell: where the other crop shows the same cell and is surer of it; offsets are those of the other."""
    losses = []
    for n, i, j in torch.cartesian_prod(torch.arange(N), torch.arange(4), torch.arange(5)).tolist():
        k, m = i - offset[n][0], j - offset[n][1]
        if not (0 <= k < 4 and 0 <= m < 5 and inside(n, i, j)):
            continue
        features, certainty, label = (each[n, ..., i, j] for each in mine)
        other, surety, _ = (each[n, ..., k, m].detach() for each in theirs)
        if surety <= threshold or certainty >= surety:
            continue
        alike = torch.exp((features * other).sum() / 0.1)
        unlike = sum(torch.exp((features * f).sum() / 0.1) for f, other_label in bank if other_label != label)
        losses.append(-torch.log(alike / (alike + unlike)))
    return sum(losses) / len(losses), len(losses)


def test_loss_and_gradient():
    """L_s + α (what the first crop learns from the second + the reverse), one cell after another."""
    models, batch = world()
    student, projector = deepcopy(models.students[0]), deepcopy(models.heads[0])
    x_l, y_l = batch.labelled()
    supervised = F.cross_entropy(F.interpolate(student(x_l), SIZE, mode="bilinear"), y_l)
    pair = batch.pair()
    first, second = (literal_cells(student, projector, x) for x in (pair.first, pair.second))
    bank = []
    for n in range(N):
        cells = [
            (crop[0][n, :, i, j], crop[2][n, i, j]) for crop in (first, second) for i in range(4) for j in range(5)
        ]
        bank += [(cells[int(u * 40)][0].detach(), cells[int(u * 40)][1]) for u in pair.places[n].tolist()]
    offset = list(zip(pair.down.tolist(), pair.right.tolist(), strict=True))
    back = [(-down, -right) for down, right in offset]
    threshold = 0.4

    def whole(n: int, i: int, j: int) -> bool:
        return bool(pair.inside[n, 8 * i : 8 * i + 8, 8 * j : 8 * j + 8].all())

    one, count_one = literal_direction(first, second, offset, whole, bank, threshold)
    two, count_two = literal_direction(
        second, first, back, lambda n, i, j: whole(n, i + offset[n][0], j + offset[n][1]), bank, threshold
    )
    assert min(count_one, count_two) > 5
    (supervised + 0.3 * (one + two)).backward()

    losses = METHODS["cac"].generator()(models, batch, settings(alpha=0.3, confidence=threshold))
    learning = nn.ModuleList(models.learning)
    measured = add_gradients(losses, learning.parameters())
    torch.testing.assert_close(measured["consistency"], (one + two).detach())
    references = [*student.parameters(), *projector.parameters()]
    for mine, reference in zip(learning.parameters(), references, strict=True):
        assert mine.grad.abs().max() > 1e-6
        torch.testing.assert_close(mine.grad, reference.grad, atol=1e-10, rtol=1e-7)


def test_who_is_surer_learns_nothing():
    """Where the second crop is surer everywhere, its features have no gradient, and the first's do."""
    random = torch.Generator().manual_seed(0)
    features = [torch.randn(2, 6, 3, 3, generator=random, requires_grad=True) for _ in range(2)]
    logits = torch.randn(2, CLASSES, 3, 3, generator=random)
    first, second = (ops.cells_of(s * logits, f) for s, f in zip((1, 9), features, strict=True))
    everywhere, bank = torch.ones(2, 3, 3, dtype=torch.bool), ops.chosen((first, second), torch.rand(2, 8))
    still = torch.zeros(2, dtype=torch.int64)
    seen = [ops.Cells(*(ops.shifted(each, still, still) for each in cells)) for cells in (second, first)]
    learnt = ops.directional_contrast(first, seen[0], everywhere, bank, 0.0)
    other = ops.directional_contrast(second, seen[1], everywhere, bank, 0.0)
    (learnt + other).backward()
    assert learnt > 0
    assert other == 0
    assert features[0].grad.abs().max() > 0
    assert features[1].grad.abs().max() == 0


def test_without_negatives_there_is_nothing_to_tell_apart():
    """All cells have one label: a loss of 0 with gradients of 0, not NaN."""
    features = torch.randn(1, 6, 2, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    logits = torch.eye(CLASSES)[:1].view(1, CLASSES, 1, 1).expand(1, CLASSES, 2, 2)
    mine, other = ops.cells_of(logits, features), ops.cells_of(5 * logits, features.detach().flip(0))
    bank = ops.chosen((mine, other), torch.rand(1, 8))
    loss = ops.directional_contrast(mine, other, torch.ones(1, 2, 2, dtype=torch.bool), bank, 0.0)
    loss.backward()
    assert loss == 0
    assert (features.grad == 0).all()


def test_the_second_crop_overlaps_with_the_first():
    """1,000 crops of images of three sizes: the shared cells show the same pixels, and are enough of them."""
    config = small_streets(jitter={"crop": (32, 48), "scale": (0.4, 1.5)})
    sizes = torch.tensor([[64, 128], [40, 48], [20, 90]])
    pixels = torch.randint(0, 256, (int(sizes.prod(dim=1).sum()), 3), dtype=torch.uint8)
    areas = sizes.prod(dim=1)
    store = Store(pixels, torch.zeros(len(pixels), dtype=torch.uint8), areas.cumsum(0) - areas, sizes, dense=True)
    plan = Plan(0, (0, 1, 2), (0, 1, 2), 2, 1000, config.jitter.scale, True, needs_pairs=True)
    table = draw(plan, 0)
    pair = jitter_pairs(store, table.unlabelled, table.overlap, config.jitter)
    assert torch.equal(pair.first, jitter_inputs(store, table.unlabelled, config.jitter))
    shared = (4 - pair.down.abs()) / 4, (6 - pair.right.abs()) / 6
    assert all(share.min() >= OVERLAP for share in shared)
    assert (shared[0] * shared[1] / (2 - shared[0] * shared[1])).min() >= 0.1
    assert {-2, -1, 0, 1, 2} <= set(pair.down.tolist())
    assert {-3, -2, -1, 0, 1, 2, 3} == set(pair.right.tolist())
    for n in range(1000):
        down, right = 8 * int(pair.down[n]), 8 * int(pair.right[n])
        here = pair.first[n, :, max(down, 0) : 32 + min(down, 0), max(right, 0) : 48 + min(right, 0)]
        there = pair.second[n, :, max(-down, 0) : 32 - max(down, 0), max(-right, 0) : 48 - max(right, 0)]
        torch.testing.assert_close(here, there, atol=1e-4, rtol=0)


def test_pairs_shift_no_other_number():
    """A table with them is the table without, and more; processes share their rows."""
    plan = Plan(0, tuple(range(6)), tuple(range(16)), 4, 8, (0.7, 1.4), True, views=2)
    plain, more = (draw(replace(plan, needs_pairs=pairs), 3) for pairs in (False, True))
    for one, other in zip(columns_of(plain), columns_of(more._replace(overlap=None)), strict=True):
        assert torch.equal(one, other)
    shares = [part(more, rank, 2).overlap.places for rank in range(2)]
    assert sorted(torch.cat(shares).flatten().tolist()) == sorted(more.overlap.places.flatten().tolist())


@pytest.mark.parametrize("name", ["swiftnet", "deeplabv3plus"])
def test_features_are_what_the_classifier_receives(name):
    """Of both networks with a head: the classifier makes the logits of them; the hook is gone afterwards."""
    network = build(Model(name=name, backbone="resnet18", width=0.125), CLASSES, seed=0).train()
    logits, features = Models((network,), (network,)).features(torch.rand(2, 3, 64, 64))
    classifier = network.head[2] if name == "swiftnet" else network.head
    torch.testing.assert_close(classifier(features), logits)
    assert not classifier._forward_pre_hooks
    assert projector_for(network, 0)(features).shape[1] == 128


def test_a_network_without_a_head_is_refused():
    """DeepLab v2 adds up the logits of four classifiers."""
    with pytest.raises(UserError, match="DeepLabV2 has no `head`"):
        projector_for(build(Model(name="deeplabv2", backbone="resnet18", width=0.125), CLASSES, seed=0), 0)


def test_crops_that_are_no_whole_cells_are_refused():
    with pytest.raises(UserError, match=r"cells of 8×8 pixels, and jitter\.crop is 36 64"):
        configured("streets", {"method": "cac", "jitter": {"crop": (36, 64)}}, source="test")


SMALL = {
    "method": "cac",
    "data": {"size": (64, 128)},
    "jitter": {"crop": (32, 48)},
    "train": {"batch_unlabelled": 4, "checkpoint_every": 2, "log_every": 1, "confidence": 0.05},
}


def test_a_run_resumes_to_the_bit_with_its_projector(tmp_path):
    """It is in the checkpoints, with its moments, and neither in the model nor without effect."""
    config = small_streets(**SMALL)
    content = assert_resumes(config, tmp_path)
    kept = safetensors.torch.load_file(tmp_path / "model.safetensors")
    student = {name for name in content if name.startswith("student.")}
    assert {f"student.{name}" for name in kept} == student
    network = build(config.model, len(data.load(config.data).classes), config.seed)
    begun = training_state([network], (), config, CPU).models.heads[0]
    for name, weights in begun.named_parameters():
        assert not torch.equal(content[f"training-head.{name}"], weights)
        assert content[f"optimiser.exp_avg.training-head.{name}"].abs().max() > 0
        assert content[f"optimiser.exp_avg.training-head.{name}"].shape == weights.shape
    assert content["optimiser.exp_avg.head.2.weight"].shape == kept["head.2.weight"].shape
